"""
Handlers that fail: their objects say so to their users, in k8s-events that are counted, bounded,
and never secret.
"""

import asyncio
import json
import logging

import pytest
from clusters import get_progress

import kopf


@pytest.fixture
def events(sandbox):
    async def list_events():
        return [
            (event['type'], event['reason'], event['message'], event.get('count', 1))
            for event in await sandbox.list('v1/events', 'default')
        ]

    return list_events


class ApiException(Exception):
    """The same as in the official client."""

    def __str__(self):
        return (
            '(403)\nReason: Forbidden\n'
            "HTTP response headers: HTTPHeaderDict({'Audit-Id': 'a-b-c', 'Set-Cookie': 's3cr3t'})\n"
            'HTTP response body: {"kind": "Status", "message": "pods is forbidden", "code": 403}\n'
        )


class MuteError(Exception):
    """An error whose text cannot be made: a mistake of its class."""

    def __str__(self):
        return self.args[0].text


def raising(error):
    async def fn():
        raise error

    return fn


@pytest.mark.parametrize(
    'error, options, expected',
    [
        pytest.param(
            ValueError('boo!'), {}, ('HandlerFailing', "Handler 'fn': boo!", 4), id='arbitrary'
        ),
        pytest.param(KeyError('x'), {}, ('HandlerFailing', "Handler 'fn': 'x'", 4), id='key'),
        pytest.param(
            kopf.PermanentError('no'), {}, ('HandlerFailed', "Handler 'fn': no", 1), id='permanent'
        ),
        pytest.param(
            ValueError('boo!'),
            {'errors': kopf.ErrorsMode.PERMANENT},
            ('HandlerFailed', "Handler 'fn': boo!", 1),
            id='made-permanent',
        ),
        pytest.param(
            kopf.TemporaryError('wait'),
            {'retries': 2},
            ('HandlerFailed', "Handler 'fn': Handler 'fn' has exceeded 2 retries: wait", 1),
            id='retries',
        ),
        pytest.param(
            kopf.TemporaryError('wait'),
            {},
            ('HandlerFailing', "Handler 'fn': wait", 2),
            id='waiting-for-long',
        ),
        pytest.param(
            MuteError('x'), {}, ('HandlerFailing', "Handler 'fn': MuteError", 4), id='with-no-text'
        ),
        pytest.param(
            ApiException(),
            {},
            ('HandlerFailing', "Handler 'fn': (403) Reason: Forbidden pods is forbidden", 4),
            id='client',
        ),
    ],
)
async def test_failures_of_handlers_are_told_once_and_counted(
    cluster, registry, run_operator, events, error, options, expected
):
    kopf.on.create('kopfexamples', id='fn', registry=registry, **options)(raising(error))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(200)

    assert await events() == [('Warning', *expected)]


@pytest.mark.parametrize(
    'error, options',
    [
        pytest.param(kopf.TemporaryError('wait', delay=300), {}, id='waiting'),
        pytest.param(ValueError('boo!'), {'errors': kopf.ErrorsMode.IGNORED}, id='ignored'),
    ],
)
async def test_expected_failures_are_not_told(
    cluster, registry, run_operator, events, error, options
):
    kopf.on.create('kopfexamples', registry=registry, **options)(raising(error))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(400)

    assert await events() == []


async def test_only_the_failing_subhandler_is_told_of(cluster, registry, run_operator, events):
    @kopf.on.create('kopfexamples', id='fn', registry=registry)
    async def fn():
        kopf.register(raising(ValueError('boo!')), id='sub')

    await run_operator()
    await cluster.create()
    await asyncio.sleep(30)

    assert await events() == [('Warning', 'HandlerFailing', "Handler 'fn/sub': boo!", 1)]


async def test_daemons_and_timers_are_told_of_too(cluster, registry, run_operator, events):
    kopf.daemon('kopfexamples', id='a', registry=registry)(raising(kopf.PermanentError('no')))
    kopf.timer('kopfexamples', id='b', interval=9999, registry=registry)(raising(ValueError('boo')))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(30)

    assert sorted(await events()) == [
        ('Warning', 'HandlerFailed', "Daemon 'a': no", 1),
        ('Warning', 'HandlerFailing', "Timer 'b': boo", 1),
    ]


@pytest.mark.guarantee('NEW-187', 'EVT-015')
@pytest.mark.parametrize(
    'option, value', [('failures', False), ('enabled', False), ('level', logging.ERROR)]
)
async def test_telling_of_failures_can_be_disabled(
    cluster, registry, settings, run_operator, sandbox, option, value
):
    setattr(settings.posting, option, value)
    kopf.on.create('kopfexamples', registry=registry)(raising(ValueError('boo!')))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(30)

    assert not [asked for asked in sandbox.requests if asked.plural == 'events']


async def test_failures_are_not_told_twice_if_log_messages_are_posted(
    cluster, registry, settings, run_operator, events
):
    settings.posting.loggers = True
    kopf.on.create('kopfexamples', registry=registry)(raising(ValueError('boo!')))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(30)

    assert {reason for _, reason, _, _ in await events()} == {'Logging'}


async def test_values_of_secrets_are_not_told(sandbox, registry, run_operator, events):
    @kopf.on.create('v1', 'secrets', id='fn', registry=registry)
    async def fn(body):
        raise ValueError('Bad value: s3cr3t')

    await run_operator()
    secret = {'apiVersion': 'v1', 'kind': 'Secret', 'stringData': {'key': 's3cr3t'}}
    await sandbox.create({**secret, 'metadata': {'name': 'obj', 'namespace': 'default'}})
    await asyncio.sleep(30)

    assert await events() == [('Warning', 'HandlerFailing', "Handler 'fn': ValueError", 1)]


async def test_refusals_in_a_dying_namespace_are_not_told_as_missing_permissions(
    sandbox, registry, run_operator, logs
):
    kopf.on.delete('configmaps', registry=registry)(raising(ValueError('boo!')))
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'dying'}})
    await run_operator()
    await sandbox.create(
        {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': 'obj', 'namespace': 'dying', 'finalizers': ['a/b']},
        }
    )
    await asyncio.sleep(30)
    await sandbox.delete('v1/namespaces', 'dying')
    await asyncio.sleep(300)

    assert [asked for asked in sandbox.requests if asked.plural == 'events']
    assert not [line for line in logs() if 'not permitted' in line]


async def test_missing_permission_is_told_once_and_the_cluster_is_not_asked_again(
    cluster, registry, run_operator, sandbox, logs
):
    kopf.on.create('kopfexamples', id='fn', registry=registry)(raising(ValueError('boo!')))
    kopf.timer('kopfexamples', id='other', interval=10, registry=registry)(raising(OSError('oh')))
    sandbox.faults.inject(code=403, resource='events', verb='create')
    await run_operator()
    await cluster.create()
    await asyncio.sleep(300)

    assert len([asked for asked in sandbox.requests if asked.plural == 'events']) == 1
    assert (
        len([line for line in logs() if 'not permitted to create k8s-events in default' in line])
        == 1
    )
    assert not [line for line in logs(logging.WARNING) if 'k8s-event' in line]


async def test_errors_are_kept_on_objects_without_headers_of_clients(
    cluster, registry, run_operator
):
    kopf.on.create('kopfexamples', id='fn', registry=registry)(raising(ApiException()))
    await run_operator()
    await cluster.create()
    body = await cluster.wait(get_progress)

    record = json.loads(get_progress(body)['kopf.zalando.org/fn'])
    assert record['message'] == '(403)\nReason: Forbidden\npods is forbidden'
