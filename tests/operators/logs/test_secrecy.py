"""
Secrets stay secret: neither the data of Secrets, nor the tokens of the operator are in what it
says, even if it is told to say all it can, and whatever goes wrong.
"""

import asyncio
import base64
import logging
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from clusters import LAST_HANDLED, wait_until

import kopf
import kopf.testing

PLAIN, ADDED, MADE, QUOTED = (
    'planted-password',
    'added-password',
    'made-password',
    'quoted-password',
)


def encode(text):
    return base64.b64encode(text.encode()).decode()


SECRETS = [text for plain in (PLAIN, ADDED, MADE, QUOTED) for text in (plain, encode(plain))]


def build_secret(name='secret'):
    applied = {
        'kubectl.kubernetes.io/last-applied-configuration': f'{{"stringData":{{"p":"{QUOTED}"}}}}'
    }
    return {
        'apiVersion': 'v1',
        'kind': 'Secret',
        'data': {'password': encode(PLAIN)},
        'metadata': {'name': name, 'namespace': 'default', 'annotations': applied},
    }


@pytest.fixture
def find_leaks(sandbox, caplog, capfd):
    """Find those of the secrets that were said in any way, and tell where."""
    caplog.set_level(logging.DEBUG)

    async def find():
        events = [str(event) for event in await sandbox.list('events')]
        outputs = capfd.readouterr()
        texts = [
            caplog.text,
            *events,
            outputs.out,
            outputs.err,
            *map(repr, caplog.records),
            *(str(record.__dict__) for record in caplog.records),
        ]
        assert any('secret' in text for text in texts)
        secrets = [*SECRETS, sandbox.token]
        return [
            line
            for text in texts
            for line in text.splitlines()
            if any(secret in line for secret in secrets)
        ]

    return find


@pytest.fixture
def handlers(registry):
    """Handlers that change Secrets in all ways, and have their difficulties with that."""
    calls = []

    def make(body):
        body['data']['made'] = encode(MADE)

    @kopf.on.event('secrets', registry=registry)
    async def event_fn(body, meta, logger, **_):
        calls.append('event')
        logger.info(
            f'This is what I know of this secret: {body!r} {meta} {body.metadata.annotations}'
        )

    @kopf.on.create('secrets', registry=registry)
    async def create_fn(body, patch, retry, **_):
        calls.append('create')
        patch['data'] = {'added': encode(ADDED)}
        patch.fns.append(make)
        if retry == 0:
            raise kopf.TemporaryError(f'not now: {body}', delay=1)

    @kopf.on.update('secrets', registry=registry)
    async def update_fn(body, **_):
        calls.append('update')
        raise ValueError(f'never: {body}')

    return calls


async def test_nothing_of_secrets_is_said_when_all_is_well(
    sandbox, handlers, run_operator, find_leaks
):
    await run_operator()
    await sandbox.create(build_secret())
    await sandbox.wait(
        'secrets',
        'secret',
        lambda body: LAST_HANDLED in body['metadata']['annotations'],
        timeout=600,
    )
    await sandbox.patch('secrets', 'secret', {'stringData': {'password': QUOTED}})
    await wait_until(lambda: 'update' in handlers)
    body = await sandbox.get('secrets', 'secret')
    await sandbox.delete('secrets', 'secret')

    assert body['data'] == {
        'password': encode(QUOTED),
        'added': encode(ADDED),
        'made': encode(MADE),
    }
    assert await find_leaks() == []


@pytest.mark.parametrize(
    'trouble',
    [
        pytest.param({'code': 500, 'message': 'cannot store'}, id='error'),
        pytest.param({'code': 403}, id='forbidden'),
        pytest.param({'code': 401}, id='unauthorized'),
        pytest.param({'code': 422, 'message': 'invalid'}, id='invalid'),
        pytest.param({'code': 409}, id='conflict'),
        pytest.param({'cut': True}, id='disconnected'),
        pytest.param({'stall': True}, id='stalled'),
    ],
)
async def test_nothing_of_secrets_is_said_when_the_api_refuses_the_changes(
    sandbox, handlers, run_operator, find_leaks, settings, trouble
):
    settings.networking.error_backoffs = [1]
    settings.networking.request_timeout = 10
    operator = await run_operator()
    await sandbox.create(build_secret())
    with sandbox.faults.inject(verb='patch', **trouble) as fault:
        await wait_until(lambda: fault.hits >= 2 or operator.task.done())
    operator.stop_flag.set()
    await asyncio.wait([operator.task])
    error = operator.task.exception()  # if there are no valid credentials any more

    assert await find_leaks() == []
    assert not any(secret in repr(error) for secret in [*SECRETS, sandbox.token])


async def test_nothing_of_secrets_is_said_when_the_changes_are_wrong(
    sandbox, registry, run_operator, find_leaks, logs
):
    @kopf.on.create('secrets', registry=registry)
    async def create_fn(patch, **_):
        patch['data'] = {'added': f'{ADDED}, which is not base64'}

    @kopf.on.update('secrets', registry=registry)
    async def update_fn(patch, **_):
        patch['data'] = {'added': ADDED.encode()}  # not of JSON at all
        patch.fns.append(lambda body: body['data'].update(made=f'{MADE}, which is not base64'))

    await run_operator()
    await sandbox.create(build_secret())
    await sandbox.wait(
        'secrets',
        'secret',
        lambda body: LAST_HANDLED in body['metadata']['annotations'],
        timeout=600,
    )
    await sandbox.patch('secrets', 'secret', {'stringData': {'password': QUOTED}})
    await wait_until(
        lambda: len([text for text in logs(logging.ERROR) if 'Patching failed' in text]) >= 3
    )

    assert await find_leaks() == []


async def test_nothing_of_secrets_is_said_when_filters_and_storages_fail(
    sandbox, registry, run_operator, find_leaks, settings, logs
):
    def check(body, **_):
        raise ValueError(f'wrong: {body}')

    class Storage(kopf.AnnotationsDiffBaseStorage):
        def fetch(self, *, body):
            raise ValueError(f'wrong: {body}')

    settings.persistence.diffbase_storage = Storage()
    kopf.on.event('secrets', registry=registry, when=check)(lambda **_: None)
    kopf.on.create('secrets', registry=registry)(lambda **_: None)

    await run_operator()
    await sandbox.create(build_secret())
    await wait_until(lambda: any('wrong' in text for text in logs(logging.ERROR)))

    assert await find_leaks() == []


HANDLERS = f"""
    import kopf

    @kopf.on.login()
    def login(**kwargs):
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event('secrets')
    def event(body, logger, **_):
        logger.info(f"Seen: {{body}}")

    @kopf.on.create('secrets')
    def create(patch, body, **_):
        patch['stringData'] = {{'added': {ADDED!r}}}
        patch.fns.append(lambda body: body['data'].update(made={encode(MADE)!r}))

    @kopf.on.update('secrets')
    def update(body, **_):
        raise kopf.PermanentError(f"Seen: {{body}}")
"""


def test_nothing_of_secrets_is_said_on_the_console_in_the_debug_mode(tmp_path):
    path = tmp_path / 'handlers.py'
    path.write_text(textwrap.dedent(HANDLERS))
    with kopf.testing.Sandbox() as sandbox:
        sandbox.create(build_secret())
        program = subprocess.Popen(
            [
                sys.executable,
                '-m',
                'kopf',
                'run',
                '--debug',
                '--all-namespaces',
                '--standalone',
                str(path),
            ],
            env={**os.environ, 'KUBECONFIG': str(sandbox.kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            sandbox.wait('secrets', 'secret', lambda body: 'made' in body['data'], timeout=60)
            sandbox.patch('secrets', 'secret', {'stringData': {'password': QUOTED}})
            sandbox.wait(
                'secrets',
                'secret',
                lambda body: (
                    encode(QUOTED) in body['metadata']['annotations'].get(LAST_HANDLED, '')
                ),
                timeout=60,
            )
        finally:
            program.send_signal(signal.SIGTERM)
            output, _ = program.communicate(timeout=60)
        secrets = [*SECRETS, sandbox.token]

    assert 'Merge-patching' in output
    assert [line for line in output.splitlines() if any(secret in line for secret in secrets)] == []
    assert program.returncode == 0
