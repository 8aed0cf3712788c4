"""
How admission handlers are declared, and the public names around them.
"""

import inspect
import typing

import pytest

import kopf
import kopf.testing
from kopf._core.intents import causes


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.mark.guarantee('ADM-005', 'ADM-006')
def test_both_decorators_have_the_same_options():
    validate, mutate = inspect.signature(kopf.on.validate), inspect.signature(kopf.on.mutate)
    options = [
        option for option in validate.parameters.values() if option.kind is option.KEYWORD_ONLY
    ]

    assert validate == mutate
    assert [option.name for option in options] == [
        'group',
        'version',
        'kind',
        'plural',
        'singular',
        'shortcut',
        'category',
        'id',
        'param',
        'operation',
        'operations',
        'subresource',
        'persistent',
        'side_effects',
        'ignore_failures',
        'labels',
        'annotations',
        'when',
        'field',
        'value',
        'registry',
    ]
    assert {option.default for option in validate.parameters.values()} == {None}
    assert len(validate.parameters) - len(options) == 3


@pytest.mark.guarantee('ADM-007')
@pytest.mark.parametrize(
    'first, second',
    [(kopf.on.validate, kopf.on.mutate), (kopf.on.mutate, kopf.on.validate)],
    ids=['validate-first', 'mutate-first'],
)
def test_decorators_can_be_stacked(registry, first, second):
    async def fn(**_):
        return 'result'

    decorated = first('pods', registry=registry)(second('pods', registry=registry)(fn))

    assert decorated is fn
    assert {handler.type for handler in registry._webhooks} == set(causes.WebhookType)


@pytest.mark.guarantee('ADM-012', 'ADM-013')
@pytest.mark.parametrize('operations', [['*'], ['*', 'CREATE']], ids=str)
def test_asterisk_is_all_operations(registry, operations):
    kopf.on.validate('pods', operations=operations, registry=registry)(lambda **_: None)

    [handler] = registry._webhooks
    assert handler.operations == {'CREATE', 'UPDATE', 'DELETE', 'CONNECT'}


@pytest.mark.guarantee('ADM-013')
def test_unknown_operations_are_refused_even_with_all_others():
    with pytest.raises(ValueError, match="no such operations as 'PATCH'"):
        kopf.on.validate('pods', operations=['*', 'PATCH'])


@pytest.mark.guarantee('ADM-015', 'ADM-016', 'ADM-017')
def test_options_are_off_by_default(registry):
    kopf.on.validate('pods', registry=registry)(lambda **_: None)

    [handler] = registry._webhooks
    assert not handler.side_effects
    assert not handler.ignore_failures
    assert not handler.persistent


@pytest.mark.guarantee('ADM-011', 'ADM-061')
@pytest.mark.parametrize(
    'cls, fields',
    [
        (kopf.UserInfo, {'username': str, 'uid': str, 'groups': list[str]}),
        (
            kopf.WebhookClientConfig,
            {
                'caBundle': str | None,
                'url': str | None,
                'service': kopf.WebhookClientConfigService | None,
            },
        ),
        (
            kopf.WebhookClientConfigService,
            {'namespace': str | None, 'name': str | None, 'path': str | None, 'port': int | None},
        ),
    ],
)
def test_public_types_are_as_promised(cls, fields):
    assert typing.is_typeddict(cls)
    assert typing.get_type_hints(cls) == fields


@pytest.mark.guarantee('ADM-053')
@pytest.mark.parametrize(
    'name',
    [
        'WebhookServer',
        'WebhookK3dServer',
        'WebhookMinikubeServer',
        'WebhookNgrokTunnel',
        'WebhookAutoServer',
        'WebhookAutoTunnel',
    ],
)
def test_servers_are_public(name):
    assert inspect.isclass(getattr(kopf, name))
    assert callable(getattr(kopf, name)())


@pytest.mark.guarantee('ADM-040', 'ADM-050')
def test_nothing_is_served_or_managed_by_default():
    settings = kopf.OperatorSettings()

    assert settings.admission.server is None
    assert settings.admission.managed is None


@pytest.mark.guarantee('ADM-031')
def test_patches_are_dicts_that_can_be_put_as_json_patches():
    patch = kopf.Patch({'spec': {'old': None}}, body={'spec': {'old': 1}})
    patch.spec['numbers'] = [1]
    patch.status['x'] = 1
    patch.meta.labels['a/b'] = 'c'
    patch.metadata['generateName'] = 'x-'

    assert isinstance(patch, dict)
    assert dict(kopf.Patch()) == {}
    assert patch.as_json_patch() == [
        {'op': 'remove', 'path': '/spec/old'},
        {'op': 'add', 'path': '/spec/numbers', 'value': [1]},
        {'op': 'add', 'path': '/status', 'value': {'x': 1}},
        {'op': 'add', 'path': '/metadata', 'value': {'labels': {'a/b': 'c'}, 'generateName': 'x-'}},
    ]


@pytest.mark.parametrize(
    'decorator', [kopf.on.validate, kopf.on.mutate], ids=['validate', 'mutate']
)
def test_functions_of_handlers_can_be_called_in_tests(registry, decorator):
    @decorator('kopfexamples', registry=registry)
    def fn(spec, old, operation, patch, warnings, dryrun, **_):
        if spec['size'] > 5:
            raise kopf.AdmissionError('Too big.', code=400)
        patch.spec['size'] = 5
        warnings.append(f'{operation} {old} {dryrun}')

    patch, warnings = kopf.Patch(), []
    kopf.testing.call(
        fn, registry=registry, spec={'size': 1}, patch=patch, warnings=warnings, dryrun=True
    )

    assert patch == {'spec': {'size': 5}}
    assert warnings == ['CREATE None True']
    with pytest.raises(kopf.AdmissionError, match=r'Too big'):
        kopf.testing.call(fn, registry=registry, spec={'size': 6}, old={'spec': {'size': 1}})
