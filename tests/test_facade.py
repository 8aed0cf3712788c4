"""
The public names of the package: all that are promised, and no others.
"""

import ast
import importlib
import inspect
import pathlib
import subprocess
import sys

import click
import pytest

import kopf
import kopf.cli

PROMISED = [
    'on',
    'lifecycles',
    'subhandler',
    'register',
    'execute',
    'daemon',
    'timer',
    'index',
    'reconcile',
    'Requeue',
    'Owns',
    'Owned',
    'Related',
    'ref',
    'selector',
    'trigger',
    'configure',
    'LogFormat',
    'login_via_pykube',
    'login_via_client',
    'login_via_async_client',
    'login_with_kubeconfig',
    'login_with_service_account',
    'LoginError',
    'ConnectionInfo',
    'AiohttpSession',
    'event',
    'info',
    'warn',
    'exception',
    'spawn_tasks',
    'run_tasks',
    'operator',
    'run',
    'adopt',
    'label',
    'not_',
    'all_',
    'any_',
    'none_',
    'get_default_lifecycle',
    'set_default_lifecycle',
    'build_object_reference',
    'build_owner_reference',
    'append_owner_reference',
    'remove_owner_reference',
    'ErrorsMode',
    'AdmissionError',
    'WebhookClientConfigService',
    'WebhookClientConfig',
    'Operation',
    'UserInfo',
    'Headers',
    'SSLPeer',
    'WebhookFn',
    'WebhookServerProtocol',
    'WebhookServer',
    'WebhookK3dServer',
    'WebhookMinikubeServer',
    'WebhookDockerDesktopServer',
    'WebhookNgrokTunnel',
    'WebhookAutoServer',
    'WebhookAutoTunnel',
    'PermanentError',
    'TemporaryError',
    'HandlerTimeoutError',
    'HandlerRetriesError',
    'OperatorRegistry',
    'get_default_registry',
    'set_default_registry',
    'PRESENT',
    'ABSENT',
    'OperatorSettings',
    'DiffBaseStorage',
    'AnnotationsDiffBaseStorage',
    'StatusDiffBaseStorage',
    'MultiDiffBaseStorage',
    'ProgressRecord',
    'ProgressStorage',
    'AnnotationsProgressStorage',
    'StatusProgressStorage',
    'MultiProgressStorage',
    'SmartProgressStorage',
    'RawEventType',
    'RawEvent',
    'RawBody',
    'Status',
    'Spec',
    'Meta',
    'Body',
    'BodyEssence',
    'Labels',
    'Annotations',
    'ObjectReference',
    'OwnerReference',
    'Memo',
    'Index',
    'Store',
    'Logger',
    'ObjectLogger',
    'LocalObjectLogger',
    'FieldSpec',
    'FieldPath',
    'Diff',
    'DiffItem',
    'DiffOperation',
    'HandlerId',
    'Reason',
    'Patch',
    'PatchFn',
    'DaemonStopped',
    'DaemonStoppingReason',
    'SyncDaemonStopperChecker',
    'AsyncDaemonStopperChecker',
    'Resource',
    'EVERYTHING',
]

ADDED = [
    'Backoff',
    'Column',
    'Immutable',
    'LeadershipLostError',
    'Rule',
    'Schema',
    'crd',
    'leading',
    'rule',
    'to_patch',
]
"""Names that only this framework has."""

UNLISTED = ['adjust_namespace', 'harmonize_naming']
"""Names that are public, but are not in the list of the public names."""


def test_promised_names_are_complete():
    assert len(PROMISED) == len(set(PROMISED)) == 116


def test_public_names_are_those_promised():
    assert sorted(kopf.__all__) == sorted(PROMISED + ADDED)


@pytest.mark.guarantee('NEW-234')
@pytest.mark.parametrize('name', UNLISTED)
def test_some_functions_are_public_but_not_listed(name):
    assert inspect.isfunction(getattr(kopf, name))
    assert name not in kopf.__all__


@pytest.mark.guarantee('WLD-014', 'NEW-007')
@pytest.mark.parametrize('name', PROMISED + ADDED)
def test_public_names_exist(name):
    assert getattr(kopf, name) is getattr(kopf, name)
    assert name in dir(kopf)


def list_static_imports():
    """List the names that type checkers see, with their origins."""
    tree = ast.parse(pathlib.Path(kopf.__file__).read_text())
    [block] = [
        node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    ]
    assert block.test.id == 'TYPE_CHECKING'
    return {alias.name: node.module for node in block.body for alias in node.names}


@pytest.mark.parametrize('name', PROMISED + ADDED)
def test_type_checkers_see_the_same(name):
    origin = importlib.import_module(list_static_imports()[name])

    assert getattr(origin, name) is getattr(kopf, name)


def test_type_checkers_see_nothing_else():
    assert sorted(list_static_imports()) == sorted([*PROMISED, *ADDED, *UNLISTED])


@pytest.mark.guarantee('HND-001')
def test_decorators_are_reachable_from_the_main_module():
    assert inspect.ismodule(kopf.on)
    assert kopf.on is importlib.import_module('kopf.on')


@pytest.mark.guarantee('HND-002')
@pytest.mark.parametrize(
    'name',
    [
        'startup',
        'cleanup',
        'login',
        'probe',
        'promoted',
        'demoted',
        'validate',
        'mutate',
        'resume',
        'create',
        'update',
        'delete',
        'field',
        'index',
        'event',
        'daemon',
        'timer',
        'reconcile',
        'subhandler',
        'register',
    ],
)
def test_all_decorators_exist(name):
    assert inspect.isfunction(getattr(kopf.on, name))
    assert inspect.getdoc(getattr(kopf.on, name))


@pytest.mark.guarantee('HND-003')
@pytest.mark.parametrize(
    'name', ['daemon', 'timer', 'index', 'reconcile', 'subhandler', 'register', 'execute']
)
def test_frequent_functions_are_in_the_main_module(name):
    assert inspect.isfunction(getattr(kopf, name))


@pytest.mark.guarantee('WLD-014')
def test_names_can_be_imported_all_at_once():
    namespace = {}
    exec('from kopf import *', namespace)

    assert namespace.keys() >= set(PROMISED)


@pytest.mark.guarantee('WLD-019')
def test_handlers_can_be_called_as_functions_with_values_made_by_users():
    registry = kopf.OperatorRegistry()

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(spec, patch, resource, **_):
        patch.status['size'] = spec['size']
        return {'of': resource.plural}

    @kopf.on.startup(registry=registry)
    def startup_fn(settings, **_):
        settings.posting.level = 40

    @kopf.on.login(registry=registry)
    def login_fn(**_):
        return kopf.ConnectionInfo(server='https://localhost', token='abc')

    patch, settings = kopf.Patch({'metadata': {'labels': {'a': 'b'}}}), kopf.OperatorSettings()
    resource = kopf.Resource('kopf.dev', 'v1', 'kopfexamples')
    result = create_fn(spec={'size': 1}, patch=patch, resource=resource, unexpected=None)
    startup_fn(settings=settings)

    assert result == {'of': 'kopfexamples'}
    assert patch == {'metadata': {'labels': {'a': 'b'}}, 'status': {'size': 1}}
    assert settings.posting.level == 40
    assert (login_fn().server, login_fn().token) == ('https://localhost', 'abc')


@pytest.mark.guarantee('FND-031')
def test_all_that_resolves_is_listed_and_all_that_is_listed_resolves():
    listed = dir(kopf)

    assert {*PROMISED, *UNLISTED, '__version__', '__version_tuple__', '__commit_id__'} <= {*listed}
    assert all(hasattr(kopf, name) for name in listed)


@pytest.mark.guarantee('FND-031')
@pytest.mark.parametrize('name', ['freeze', 'resume', 'run'])
def test_commands_are_attributes(name):
    command = getattr(kopf.cli, name)

    assert isinstance(command, click.Command)
    assert command.name == name
    assert command is kopf.cli.main.get_command(click.Context(kopf.cli.main), name)
    assert {name} <= {*kopf.cli.__all__} <= {*dir(kopf.cli)}


@pytest.mark.guarantee('FND-031')
def test_unknown_commands_are_not_attributes():
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        kopf.cli.unknown  # noqa: B018


@pytest.mark.guarantee('FND-031')
def test_controls_are_positional():
    values = [object() for _ in range(6)]
    controls = kopf.cli.CLIControls(*values)

    names = ['ready_flag', 'stop_flag', 'vault', 'registry', 'settings', 'loop']
    assert [getattr(controls, name) for name in names] == values


@pytest.mark.guarantee('FND-031')
@pytest.mark.parametrize(
    'cls, names',
    [
        ('ActivityDecorator', ['startup', 'cleanup', 'login', 'probe', 'promoted', 'demoted']),
        ('WatchingDecorator', ['event']),
        ('ChangingDecorator', ['create', 'update', 'delete', 'resume', 'field', 'subhandler']),
        ('WebhookDecorator', ['validate', 'mutate']),
        ('IndexingDecorator', ['index']),
        ('DaemonDecorator', ['daemon']),
        ('TimerDecorator', ['timer']),
        ('ReconcilingDecorator', ['reconcile']),
    ],
)
def test_decorators_have_types(cls, names):
    for name in names:
        assert inspect.signature(getattr(kopf.on, name)).return_annotation is getattr(kopf.on, cls)


ALIASES = [
    ('kopf._cogs.helpers.typedefs', 'Logger', 'Logger'),
    ('kopf._cogs.structs.bodies', 'Body', 'Body'),
    ('kopf._cogs.structs.ephemera', 'Memo', 'Memo'),
    ('kopf._core.intents.causes', 'Reason', 'Reason'),
    ('kopf._core.intents.registries', 'SmartOperatorRegistry', 'OperatorRegistry'),
]


@pytest.mark.guarantee('FND-033')
@pytest.mark.parametrize('module, name, public', ALIASES)
def test_aliases_of_hidden_names_warn_once_with_the_public_names(module, name, public):
    """In another process, as the names could be imported here before."""
    code = f"""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    from {module} import {name}
    from {module} import {name} as again
import kopf
assert {name} is again is kopf.{public}
[warning] = caught
assert warning.filename == '<string>', warning.filename
print(warning.category.__name__, warning.message)
"""
    result = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=False
    )

    assert result.stderr == ''
    assert (
        result.stdout
        == f'FutureWarning {module}.{name} is hidden, and can be gone any time. Use kopf.{public}.\n'
    )


@pytest.mark.guarantee('FND-033')
@pytest.mark.parametrize('module', sorted({module for module, _, _ in ALIASES}))
def test_other_hidden_names_are_not_there(module):
    with pytest.raises(AttributeError, match="has no attribute 'unknown'"):
        importlib.import_module(module).unknown  # noqa: B018
