"""
Whatever object the API server accepts is handled, or is reported and left alone by itself. All
others are handled.

Before, one object that is too deep for Python stopped the handling of all objects of its resource,
also after restarts.

The sandbox accepts fewer levels of nesting than the API server does. For those, see the tests on
real clusters.
"""

import asyncio
import json
import logging
import re

import pytest

import kopf
import kopf.testing
from kopf._cogs.helpers import jsons

PLURAL = 'kopfexamples'
FINALIZER = 'kopf.zalando.org/KopfFinalizerMarker'
PREFIX = 'kopf.zalando.org'
LAST_HANDLED = f'{PREFIX}/last-handled-configuration'
LEVELS = 300
ANYTHING = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': f'{PLURAL}.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'kind': 'KopfExample', 'plural': PLURAL, 'singular': 'kopfexample'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'properties': {'spec': ANYTHING, 'status': ANYTHING},
                    },
                },
            }
        ],
    },
}

pytestmark = pytest.mark.guarantee('FND-050')


def nest(levels, *, kind=dict):
    value = 1
    for _ in range(levels):
        value = {'a': value} if kind is dict else [value]
    return value


def is_handled(body):
    return LAST_HANDLED in body['metadata'].get('annotations', {})


async def wait_until(check, timeout=600.0):
    async with asyncio.timeout(timeout):
        while not (value := check()):
            await asyncio.sleep(0.01)
        return value


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(tls=False, apply=[CRD]) as sandbox:
        yield sandbox


@pytest.fixture(params=['any', 'portable'])
def backend(request, monkeypatch):
    """JSON as it is read and written with the faster library, if it is installed, and with none."""
    if request.param == 'portable':
        monkeypatch.setattr(jsons, 'orjson', None)
        monkeypatch.setattr(jsons, 'IS_FAST', False)


@pytest.fixture
def create(sandbox):
    async def create(name, spec=None, **metadata):
        return await sandbox.create(
            {
                'apiVersion': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'spec': {'x': 1} if spec is None else spec,
                'metadata': {'name': name, 'namespace': 'default', **metadata},
            }
        )

    return create


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
def calls(registry):
    """The handlers of all kinds, and what they were called for: tuples of kinds and names."""
    calls = []

    @kopf.on.event(PLURAL, registry=registry)
    async def event_fn(type, name, **_):
        calls.append((f'event:{type}', name))

    @kopf.index(PLURAL, registry=registry)
    async def index_fn(name, **_):
        return {name: True}

    @kopf.on.create(PLURAL, registry=registry)
    async def create_fn(name, **_):
        calls.append(('create', name))

    @kopf.on.update(PLURAL, registry=registry)
    async def update_fn(name, diff, **_):
        calls.append(('update', name))

    @kopf.daemon(PLURAL, registry=registry)
    async def daemon_fn(name, stopped, **_):
        calls.append(('daemon', name))
        await stopped.wait()
        calls.append(('stopped', name))

    return calls


@pytest.fixture
def reports(caplog):
    """The names of objects that were reported as left alone."""

    def find():
        texts = [
            record.getMessage() for record in caplog.records if record.levelno == logging.ERROR
        ]
        return [
            found[1]
            for text in texts
            if (found := re.search(r'The object default/(\S+) .* is left alone', text))
        ]

    return find


@pytest.fixture
def run_operator(sandbox, registry):
    return lambda **kwargs: kopf.testing.Operator(sandbox, registry=registry, **kwargs)


@pytest.mark.parametrize('kind', [dict, list])
async def test_deep_object_is_left_alone_and_others_are_handled_also_after_restarts(
    backend, create, calls, reports, run_operator, sandbox, kind
):
    await create('good1')
    bad = await create('bad', {'f': nest(LEVELS, kind=kind)})
    async with run_operator():
        await create('good2')
        await create('worse', {'f': nest(LEVELS, kind=kind)})
        await create('good3')
        await wait_until(lambda: {('daemon', f'good{i}') for i in (1, 2, 3)} <= set(calls))
    await create('good4')
    async with run_operator():
        await wait_until(lambda: {('create', f'good{i}') for i in (1, 2, 3, 4)} <= set(calls))

    assert {name for _, name in calls} == {'good1', 'good2', 'good3', 'good4'}
    assert [call for call in calls if call[0] == 'create'] == [
        ('create', f'good{i}') for i in (1, 2, 3, 4)
    ]
    assert sorted(reports()) == ['bad', 'bad', 'worse', 'worse']
    assert (await sandbox.get(PLURAL, 'bad')) == bad


async def test_usual_depths_are_handled(backend, create, calls, reports, run_operator, sandbox):
    await create('good', {'f': nest(240), 'g': nest(240, kind=list)})
    async with run_operator():
        await wait_until(lambda: ('create', 'good') in calls)
        await sandbox.patch(
            PLURAL, 'good', {'spec': {'f': {'b': nest(230)}, 'g': nest(239, kind=list)}}
        )
        await wait_until(lambda: ('update', 'good') in calls)

    assert reports() == []


async def test_object_that_becomes_deep_is_handled_when_it_is_corrected(
    create, calls, reports, run_operator, sandbox
):
    await create('obj')
    async with run_operator():
        await sandbox.wait(PLURAL, 'obj', is_handled)
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': nest(LEVELS)}})
        await wait_until(lambda: reports() == ['obj'])
        await sandbox.patch(PLURAL, 'obj', {'metadata': {'labels': {'a': 'b'}}})
        await asyncio.sleep(10)
        before = list(calls)
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': None, 'x': 2}})
        await wait_until(lambda: ('update', 'obj') in calls)

    assert ('update', 'obj') not in before
    assert ('stopped', 'obj') not in before


async def test_edits_of_a_deep_object_do_not_flood_the_logs(
    create, calls, caplog, reports, run_operator, sandbox
):
    """Before, there was a line for each of the edits."""
    await create('bad', {'f': nest(LEVELS)})
    async with run_operator():
        await wait_until(reports)
        for number in range(50):
            await sandbox.patch(PLURAL, 'bad', {'metadata': {'labels': {'edit': f'{number}'}}})
            await asyncio.sleep(1)
        assert reports() == ['bad']

        await asyncio.sleep(600)
        await sandbox.patch(PLURAL, 'bad', {'metadata': {'labels': {'edit': 'last'}}})
        await wait_until(lambda: reports() == ['bad', 'bad'])

    assert 'It was so 50 more times since it was reported last.' in caplog.text


async def test_deep_object_that_is_being_deleted_is_reported_and_its_daemons_stop_when_it_is_gone(
    create, calls, caplog, reports, run_operator, sandbox
):
    await create('obj')
    async with run_operator():
        await sandbox.wait(PLURAL, 'obj', is_handled)
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': nest(LEVELS)}})
        await sandbox.delete(PLURAL, 'obj')
        await wait_until(
            lambda: (
                f"Its deletion is blocked: correct the object, or remove the finalizer '{FINALIZER}'"
                in caplog.text
            )
        )
        await sandbox.patch(PLURAL, 'obj', {'metadata': {'finalizers': []}})
        await wait_until(lambda: ('event:DELETED', 'obj') in calls and ('stopped', 'obj') in calls)


async def test_deep_object_that_is_corrected_while_it_is_being_deleted_is_released(
    create, calls, caplog, run_operator, sandbox
):
    await create('obj')
    async with run_operator():
        await sandbox.wait(PLURAL, 'obj', is_handled)
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': nest(LEVELS)}})
        await sandbox.delete(PLURAL, 'obj')
        await wait_until(lambda: 'Its deletion is blocked' in caplog.text)
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': None}})
        await sandbox.wait(PLURAL, 'obj', lambda body: body is None)

    assert ('stopped', 'obj') in calls


async def test_deletion_of_deep_object_has_its_labels(
    create, registry, reports, run_operator, sandbox
):
    deleted = []

    @kopf.on.event(PLURAL, labels={'a': 'b'}, registry=registry)
    async def event_fn(type, name, labels, **_):
        deleted.append((type, name, dict(labels)))

    await create('obj', {'f': nest(LEVELS)}, labels={'a': 'b'})
    await create('other', {'f': nest(LEVELS)}, labels={'a': 'c'})
    async with run_operator():
        await wait_until(lambda: len(reports()) == 2)
        await sandbox.delete(PLURAL, 'other')
        await sandbox.delete(PLURAL, 'obj')
        await wait_until(lambda: deleted)

    assert deleted == [('DELETED', 'obj', {'a': 'b'})]


async def test_deep_objects_survive_relists_and_those_gone_meanwhile_are_noticed(
    create, calls, reports, run_operator, sandbox
):
    for name in ('gone', 'kept', 'remade'):
        await create(name)
    async with run_operator():
        await wait_until(
            lambda: {('daemon', name) for name in ('gone', 'kept', 'remade')} <= set(calls)
        )
        for name in ('gone', 'kept', 'remade'):
            await sandbox.wait(PLURAL, name, is_handled)
            await sandbox.patch(PLURAL, name, {'spec': {'f': nest(LEVELS)}})
        await wait_until(lambda: sorted(reports()) == ['gone', 'kept', 'remade'])
        with sandbox.faults.inject(resource=PLURAL, user_agent='kopf/*', cut=True) as fault:
            for name in ('gone', 'remade'):
                await sandbox.patch(PLURAL, name, {'metadata': {'finalizers': []}})
                await sandbox.delete(PLURAL, name)
            await create('remade', {'f': nest(LEVELS)})
            await sandbox.compact()
            await wait_until(lambda: fault.hits)
        await wait_until(lambda: {('stopped', 'gone'), ('stopped', 'remade')} <= set(calls))
        await create('next')
        await wait_until(lambda: ('create', 'next') in calls)
        stopped = [call for call in calls if call[0] in ('stopped', 'event:DELETED')]

    assert {name for _, name in stopped} == {'gone', 'remade'}


async def test_retries_of_object_that_has_become_deep_wait_until_it_is_corrected(
    create, registry, reports, run_operator, sandbox
):
    attempts = []

    @kopf.on.create(PLURAL, registry=registry)
    async def create_fn(retry, spec, **_):
        attempts.append((retry, dict(spec)))
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=30)

    await create('obj')
    async with run_operator():
        await wait_until(lambda: attempts)
        await sandbox.wait(PLURAL, 'obj', lambda body: 'not yet' in str(body['metadata']))
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': nest(LEVELS)}})
        await wait_until(reports)
        await asyncio.sleep(600)
        assert len(attempts) == 1
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': None}})
        await wait_until(lambda: len(attempts) == 2)

    assert attempts[1] == (1, {'x': 1})


async def test_handler_that_makes_its_object_deep_is_called_once(
    create, registry, caplog, reports, run_operator, sandbox
):
    attempts = []

    @kopf.on.create(PLURAL, registry=registry)
    async def create_fn(patch, **_):
        attempts.append('create')
        await sandbox.patch(PLURAL, 'obj', {'spec': {'f': nest(LEVELS)}})
        patch.status['done'] = True

    await create('obj')
    async with run_operator():
        await wait_until(reports)
        await sandbox.wait(PLURAL, 'obj', lambda body: (body.get('status') or {}).get('done'))
        await asyncio.sleep(600)

    assert attempts == ['create']
    assert 'Traceback' not in caplog.text


@pytest.mark.parametrize(
    'text',
    [
        '',
        ' ',
        '[]',
        '1',
        '"x"',
        'null',
        'true',
        '{',
        '{}',
        '{"spec":[]}',
        '{"spec":1,"metadata":7}',
        '{"metadata":{"annotations":[],"labels":"x"}}',
        '{"metadata":[1]}',
        '{"apiVersion":1,"kind":{},"metadata":null}',
        '{"spec":{"x":1e999}}',
        '{"spec":{"x":NaN}}',
        '9' * 5000,
        '{"spec":{"x":' + '9' * 5000 + '}}',
        '{"x":"\\ud800"}',
        '{"":{"":{}}}',
        '[' * 9000 + ']' * 9000,
        '{"a":' * 7000 + '1' + '}' * 7000,
        '{"spec":' + '{"a":' * 900 + '1' + '}' * 901,
        '{"spec":{"x":1},"spec":{"x":[]}}',
        '{"spec":{"x":"\\u0000"},"__class__":"x"}',
        '{"spec":{"a.b/c~1":0}}',
    ],
)
async def test_hostile_annotations_do_not_stop_handling(
    create, registry, caplog, run_operator, sandbox, text
):
    handled = []

    async def handle(name, spec, retry, reason, **_):
        handled.append(name)

    for on in (kopf.on.create, kopf.on.update, kopf.on.resume):
        on(PLURAL, id='fn', registry=registry)(handle)
    names = ('last-handled-configuration', 'fn', 'kopf.cycle', 'touch-dummy', 'kopf-managed')
    await create('bad', annotations={f'{PREFIX}/{name}': text for name in names})
    await create('good')
    async with run_operator():
        await wait_until(lambda: {'good', 'bad'} <= set(handled))
        await sandbox.wait(
            PLURAL, 'bad', lambda body: body['metadata']['annotations'].get(LAST_HANDLED) != text
        )
        await sandbox.patch(
            PLURAL,
            'bad',
            {'metadata': {'annotations': {f'{PREFIX}/{name}': text for name in names}}},
        )
        await sandbox.patch(PLURAL, 'bad', {'spec': {'y': 1}})
        await wait_until(lambda: handled.count('bad') >= 2)

    assert 'Traceback' not in caplog.text


@pytest.mark.parametrize(
    'record',
    [
        {'started': 5},
        {'started': 'x', 'delayed': 'y', 'stopped': 'z'},
        {'delayed': '0001-01-01T00:00:00+23:59'},
        {'started': '9999-12-31T23:59:59-23:59', 'retries': 3},
        {'retries': 1e300},
        {'retries': -5},
        {'retries': True},
        {'retries': 10**18},
        {'subrefs': {'a': 1}},
        {'subrefs': [[], {}, None, 1]},
        {'success': 'yes', 'failure': []},
        {'purpose': ['create']},
        {'purpose': 'x' * 100000},
        {'message': {'a': 1}},
        {'essence': 1, 'purpose': 'create'},
        {'delayed': '2020-01-01T00:00:00'},
        {'started': ''},
        {'subrefs': ['fn']},
    ],
)
async def test_hostile_records_of_progress_do_not_stop_handling(
    create, registry, caplog, run_operator, record
):
    handled = []

    @kopf.on.create(PLURAL, id='fn', registry=registry)
    async def create_fn(name, retry, started, runtime, **_):
        handled.append(name)

    await create('bad', annotations={f'{PREFIX}/fn': json.dumps(record)})
    await create('good')
    async with run_operator():
        await wait_until(lambda: {'good', 'bad'} <= set(handled))

    assert 'Traceback' not in caplog.text


@pytest.mark.parametrize(
    'spec',
    [
        pytest.param({'f': 10**300, 'g': -(10**18), 'h': 1e308, 'i': 5e-324}, id='numbers'),
        pytest.param(
            {'': {'': []}, '\x00': 1, '.': 2, '/': 3, '~': 4, '__class__': 5, '\n': 6, '*': 7},
            id='keys',
        ),
        pytest.param({'f': '\x00\x7f\u2028\ufffd\U0001f600' * 1000}, id='characters'),
        pytest.param({'f': ['x' * 1000] * 1000}, id='megabyte'),
        pytest.param({'f': [[]] * 100000}, id='wide'),
        pytest.param({f'k{i}': {} for i in range(20000)}, id='many'),
        pytest.param(
            {'apiVersion': 'v1', 'kind': 'Status', 'metadata': {'resourceVersion': '1'}},
            id='lookalike',
        ),
    ],
)
async def test_unusual_contents_are_handled(create, calls, reports, run_operator, sandbox, spec):
    await create('odd', spec)
    await create('good')
    async with run_operator():
        await wait_until(lambda: {('create', 'odd'), ('create', 'good')} <= set(calls))
        await sandbox.patch(PLURAL, 'odd', {'spec': {'another': 1}})
        await wait_until(lambda: ('update', 'odd') in calls or reports())

    assert reports() == []
