"""
Values of Secrets are for use, and not for show: neither in what handlers print, nor, if asked, in
the annotations.

Before, only the body and its parts were masked: the values were in the logs with ``old``, ``new``,
``diff``, ``event``.
"""

import asyncio
import base64
import copy
import json
import pickle

import pytest
import yaml

import kopf
import kopf.testing
from kopf._cogs.configs import checks

LAST_HANDLED = 'kopf.zalando.org/last-handled-configuration'
LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

pytestmark = pytest.mark.guarantee('FND-055')


def encode(text):
    return base64.b64encode(text.encode()).decode()


FIRST, SECOND, OTHER = encode('first-password'), encode('second-password'), encode('other-password')


async def wait_until(check, timeout=600.0):
    async with asyncio.timeout(timeout):
        while not (value := check()):
            await asyncio.sleep(0.01)
        return value


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
async def secret(sandbox):
    return await sandbox.create(
        {
            'apiVersion': 'v1',
            'kind': 'Secret',
            'data': {'password': FIRST, 'other': OTHER},
            'metadata': {
                'name': 'secret',
                'namespace': 'default',
                'labels': {'shown': 'label'},
                'annotations': {LAST_APPLIED: json.dumps({'data': {'password': FIRST}})},
            },
        }
    )


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
def settings():
    return kopf.OperatorSettings()


@pytest.fixture
def run_operator(sandbox, registry, settings):
    return lambda: kopf.testing.Operator(sandbox, registry=registry, settings=settings)


def is_handled(body):
    return LAST_HANDLED in body['metadata'].get('annotations', {})


async def change(sandbox, **data):
    await sandbox.patch('secrets', 'secret', {'data': data})


async def test_nothing_printed_of_secrets_has_their_values(sandbox, secret, registry, run_operator):
    printed, used = [], []

    def show(body, spec, meta, annotations, **kwargs):
        values = [
            body,
            spec,
            meta,
            annotations,
            *(kwargs.get(name) for name in ('old', 'new', 'diff', 'event')),
        ]
        values += [*(kwargs.get('diff') or ()), (kwargs.get('event') or {}).get('object')]
        values += [copy.deepcopy(kwargs.get('new'))]
        printed.extend(
            text for value in values for text in (str(value), repr(value), f'{value} {[value]}')
        )
        used.append((body['data']['password'], dict(body)['data']['password']))

    for on in (kopf.on.event, kopf.on.create, kopf.on.update, kopf.on.delete, kopf.index):
        on('secrets', registry=registry)(lambda _show=show, **kwargs: _show(**kwargs))
    kopf.on.field('secrets', field='data', registry=registry, id='field')(show)

    async with run_operator():
        await sandbox.wait('secrets', 'secret', is_handled)
        await change(sandbox, password=SECOND, more=OTHER)
        await wait_until(
            lambda: any("'change', ('data', 'password'), '***', '***'" in text for text in printed)
        )
        await sandbox.delete('secrets', 'secret')
        await sandbox.wait('secrets', 'secret', lambda body: body is None)

    assert not [text for text in printed if any(value in text for value in (FIRST, SECOND, OTHER))]
    assert any("'shown': 'label'" in text for text in printed)
    assert {(FIRST, FIRST), (SECOND, SECOND)} == set(used)


async def test_values_of_secrets_are_given_to_handlers_as_they_are(
    sandbox, secret, registry, run_operator
):
    given = []

    @kopf.on.update('secrets', registry=registry)
    async def update_fn(old, new, diff, **_):
        given.append((old['data'], new['data'], [tuple(item) for item in diff]))

    @kopf.on.field('secrets', field='data.password', registry=registry)
    async def field_fn(old, new, **_):
        given.append((old, new))

    async with run_operator():
        await sandbox.wait('secrets', 'secret', is_handled)
        given.clear()
        await change(sandbox, password=SECOND)
        await wait_until(lambda: len(given) == 2)

    assert given == [
        (
            {'password': FIRST, 'other': OTHER},
            {'password': SECOND, 'other': OTHER},
            [('change', ('data', 'password'), FIRST, SECOND)],
        ),
        (FIRST, SECOND),
    ]


@pytest.mark.parametrize(
    'convert',
    [
        pytest.param(lambda value: json.loads(json.dumps(value)), id='json'),
        pytest.param(lambda value: yaml.safe_load(yaml.safe_dump(value)), id='safe-yaml'),
        pytest.param(lambda value: yaml.safe_load(yaml.dump(value)), id='any-yaml'),
        pytest.param(lambda value: pickle.loads(pickle.dumps(value)), id='pickle'),
        pytest.param(copy.deepcopy, id='copy'),
    ],
)
async def test_values_of_secrets_are_written_as_they_are(
    sandbox, secret, registry, run_operator, convert
):
    written = []

    @kopf.on.update('secrets', registry=registry)
    async def update_fn(old, new, **_):
        written.extend([convert(old)['data']['password'], convert(new)['data']['password']])

    @kopf.on.field('secrets', field='data', registry=registry)
    async def field_fn(new, **_):
        written.append(convert(new)['password'])

    @kopf.on.event('secrets', registry=registry)
    async def event_fn(event, **_):
        written.append(convert(event)['object']['data']['password'])

    async with run_operator():
        await sandbox.wait('secrets', 'secret', is_handled)
        await wait_until(lambda: FIRST in written)
        await change(sandbox, password=SECOND)
        await wait_until(lambda: written.count(SECOND) >= 3)

    assert set(written) == {FIRST, SECOND}


async def test_only_digests_are_kept_if_asked(sandbox, secret, registry, settings, run_operator):
    settings.persistence.secrets = 'digests'
    given = []

    @kopf.on.create('secrets', registry=registry)
    @kopf.on.update('secrets', registry=registry)
    async def fn(old, new, diff, retry, reason, **_):
        given.append(
            (
                str(reason),
                old and dict(old['data']),
                new['data'],
                [tuple(item) for item in diff][1:2],
            )
        )
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=1)

    @kopf.on.update('secrets', registry=registry)
    async def other_fn(**_):
        pass

    async with run_operator():
        await sandbox.wait('secrets', 'secret', is_handled, timeout=100)
        given.clear()
        await sandbox.patch(
            'secrets',
            'secret',
            {'data': {'password': SECOND}, 'metadata': {'labels': {'shown': 'x'}}},
        )
        await wait_until(lambda: len(given) == 1)
        meanwhile = await sandbox.wait('secrets', 'secret', lambda body: 'not yet' in str(body))
        await wait_until(lambda: len(given) == 2)
        body = await sandbox.wait('secrets', 'secret', lambda body: 'not yet' not in str(body))

    texts = [
        value
        for state in (meanwhile, body)
        for name, value in state['metadata']['annotations'].items()
        if name != LAST_APPLIED
    ]
    assert not [text for text in texts if any(value in text for value in (FIRST, SECOND, OTHER))]
    assert given[0][:3] == (
        'update',
        {'password': '***', 'other': OTHER},
        {'password': SECOND, 'other': OTHER},
    )
    handled = json.loads(body['metadata']['annotations'][LAST_HANDLED])
    assert handled['data'].keys() == {'password', 'other'}
    assert len(set(handled['data'].values())) == 2


async def test_equal_values_of_different_secrets_have_different_digests(
    sandbox, secret, registry, settings, run_operator
):
    settings.persistence.secrets = 'digests'
    kopf.on.create('secrets', registry=registry)(lambda **_: None)
    await sandbox.create(
        {
            'apiVersion': 'v1',
            'kind': 'Secret',
            'data': {'password': FIRST},
            'metadata': {'name': 'twin', 'namespace': 'default'},
        }
    )
    async with run_operator():
        bodies = [await sandbox.wait('secrets', name, is_handled) for name in ('secret', 'twin')]

    digests = {
        json.loads(body['metadata']['annotations'][LAST_HANDLED])['data']['password']
        for body in bodies
    }
    assert len(digests) == 2


@pytest.mark.parametrize(
    'modes', [('digests', 'digests'), ('values', 'digests'), ('digests', 'values')]
)
async def test_restarts_and_other_modes_call_no_handlers(
    sandbox, secret, registry, settings, run_operator, modes
):
    calls = []

    @kopf.on.create('secrets', registry=registry)
    @kopf.on.update('secrets', registry=registry)
    async def fn(reason, old, diff, **_):
        calls.append((str(reason), old and old['data']['password'], [item.field for item in diff]))

    for mode in modes:
        settings.persistence.secrets = mode
        async with run_operator():
            await sandbox.wait('secrets', 'secret', is_handled)
            await asyncio.sleep(60)
    assert [reason for reason, _, _ in calls] == ['create']

    async with run_operator():
        await change(sandbox, password=SECOND)
        await wait_until(lambda: len(calls) == 2)

    assert calls[1] == ('update', '***', [('data', 'password')])


def test_wrong_mode_is_refused(settings):
    settings.persistence.secrets = 'nothing'

    assert checks.check_settings(settings) == [
        "settings.persistence.secrets is 'nothing'; accepted is 'values' or 'digests'."
    ]
