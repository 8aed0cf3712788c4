import asyncio
import contextlib
import datetime
import logging
import sys
import types

import aiohttp
import pytest

import kopf
import kopf.testing
from kopf._cogs.aiokits import clocks
from kopf._cogs.clients import limits, requests
from kopf._cogs.structs import credentials, memos, vaults
from kopf._core.engines.activities import authentication
from kopf._core.intents import piggybacking

LOGGERS = ['kopf.activities.authentication', 'kopf._core.engines.activities']


def make(token='token', **fields):
    return kopf.ConnectionInfo(server='https://localhost', token=token, **fields)


@pytest.fixture
async def vault():
    vault = vaults.Vault(now=clocks.Clock())
    yield vault
    await vault.close()


@pytest.fixture
async def authenticator(registry, settings, vault):
    """The task that logs in when needed."""
    task = asyncio.create_task(
        authentication.run_authentication(
            registry=registry,
            settings=settings,
            vault=vault,
            memo=memos.Memo(),
            indices={},
            now=clocks.Clock(),
        )
    )
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, credentials.LoginError, ValueError):
        await task


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """Neither in a pod, nor with a kubeconfig, nor with any libraries."""
    monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', str(tmp_path / 'serviceaccount'))
    for library in ('pykube', 'kubernetes', 'kubernetes_asyncio'):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    for name in ('KUBECONFIG', 'KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT'):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
def context(vault, settings):
    return requests.Context(
        vault, settings, logging.getLogger('kopf.test'), limits.Gates(), chance=lambda: 0.0
    )


@pytest.mark.guarantee('AUT-001', 'AUT-029')
async def test_nobody_logs_in_until_credentials_are_needed(
    virtual_time, registry, vault, authenticator
):
    calls = []

    @kopf.on.login(id='login', registry=registry)
    async def login(**_):
        calls.append(virtual_time.elapsed)
        return make()

    await asyncio.sleep(100)
    key, info = await vault.select()

    assert calls == [100]
    assert (key, info) == ('login', make())


@pytest.mark.guarantee('AUT-002', 'AUT-003', 'AUT-004', 'AUT-026')
async def test_all_credentials_of_all_handlers_are_used(registry, vault, authenticator):
    kopf.on.login(id='one', registry=registry)(lambda **_: make('one'))
    kopf.on.login(id='two', registry=registry)(lambda **_: make('two'))
    kopf.on.login(id='nothing', registry=registry)(lambda **_: None)

    selected = {await vault.select() for _ in range(100)}

    assert selected == {('one', make('one')), ('two', make('two'))}


@pytest.mark.guarantee('NEW-170')
async def test_handlers_can_bring_sessions(registry, vault, authenticator):
    async with aiohttp.ClientSession() as session:
        info = kopf.AiohttpSession(server='https://localhost', aiohttp_session=session)
        kopf.on.login(id='fn', registry=registry)(lambda **_: info)

        assert await vault.select() == ('fn', info)


@pytest.mark.guarantee('AUT-006')
async def test_handlers_get_the_arguments_of_activities(registry, settings, vault, authenticator):
    calls = []

    @kopf.on.login(registry=registry)
    def login(**kwargs):
        calls.append(kwargs)
        return make()

    await vault.select()

    assert calls[0]['settings'] is settings
    assert calls[0]['logger'].name == LOGGERS[0]
    assert {'memo', 'retry', 'started', 'runtime', 'param', 'activity'} <= set(calls[0])


@pytest.mark.guarantee('AUT-005')
async def test_requests_wait_while_handlers_are_retried(
    virtual_time, registry, vault, authenticator
):
    @kopf.on.login(registry=registry)
    async def login(retry, **_):
        if retry < 5:
            raise ValueError('boo')
        return make()

    await vault.select()

    assert virtual_time.elapsed == pytest.approx(300, abs=1)


@pytest.mark.guarantee('AUT-005')
async def test_handlers_that_fail_are_not_needed_if_others_succeed(registry, vault, authenticator):
    @kopf.on.login(registry=registry)
    async def failing(**_):
        raise kopf.PermanentError('No way.')

    @kopf.on.login(id='login', registry=registry)
    async def login(**_):
        return make()

    assert await vault.select() == ('login', make())


@pytest.mark.guarantee('AUT-031', 'AUT-033')
@pytest.mark.parametrize(
    'fn, options, reason',
    [
        pytest.param(lambda **_: None, {}, 'fn: not applicable here', id='nothing'),
        pytest.param(lambda **_: 1 / 0, {'retries': 1}, 'division by zero', id='failed'),
    ],
)
async def test_failed_login_fails_the_requests_and_the_task(
    registry, vault, authenticator, fn, options, reason
):
    kopf.on.login(id='fn', registry=registry, **options)(fn)

    with pytest.raises(kopf.LoginError, match=reason):
        await vault.select()
    with pytest.raises(kopf.LoginError, match=reason):
        await authenticator
    with pytest.raises(kopf.LoginError, match=reason):
        await vault.select()


@pytest.mark.guarantee('NEW-173', 'AUT-002')
@pytest.mark.parametrize('result', ['token', {'server': 'https://localhost'}, 123])
async def test_results_of_other_types_fail_the_requests_and_the_task(
    registry, vault, authenticator, result
):
    kopf.on.login(id='fn', registry=registry)(lambda **_: result)

    with pytest.raises(kopf.LoginError, match=r'kopf\.ConnectionInfo'):
        await vault.select()
    with pytest.raises(ValueError, match=r'kopf\.ConnectionInfo'):
        await authenticator


@pytest.mark.guarantee('AUT-030', 'AUT-031')
async def test_rejected_credentials_are_not_taken_again(
    virtual_time, registry, vault, authenticator
):
    kopf.on.login(id='fn', registry=registry)(lambda **_: make('old'))
    key, info = await vault.select()
    await vault.invalidate(key, info, exc=ValueError('unauthorized'))

    with pytest.raises(kopf.LoginError, match='rejected'):
        await vault.select()
    with pytest.raises(kopf.LoginError, match='rejected'):
        await authenticator


@pytest.mark.guarantee('AUT-029')
async def test_expired_credentials_are_renewed_for_all_who_wait_at_once(
    virtual_time, registry, vault, authenticator
):
    logins = []

    @kopf.on.login(registry=registry)
    async def login(**_):
        logins.append(virtual_time.elapsed)
        await asyncio.sleep(5)
        return make(
            f'token-{len(logins)}', expiration=clocks.Clock()() + datetime.timedelta(seconds=100)
        )

    await vault.select()
    await asyncio.sleep(200)
    selected = await asyncio.gather(*[vault.select() for _ in range(10)])

    assert len(logins) == 2
    assert {info.token for _, info in selected} == {'token-2'}


async def test_cancelled_login_leaves_the_requests_waiting_for_the_next_one(
    virtual_time, registry, settings, vault, authenticator
):
    logins = []

    @kopf.on.login(id='login', registry=registry)
    async def login(**_):
        logins.append(virtual_time.elapsed)
        await asyncio.sleep(50)
        return make()

    waiter = asyncio.create_task(vault.select())
    await asyncio.sleep(10)
    authenticator.cancel()
    await asyncio.wait([authenticator])
    assert not waiter.done()

    another = asyncio.create_task(
        authentication.run_authentication(
            registry=registry,
            settings=settings,
            vault=vault,
            memo=None,
            indices={},
            now=clocks.Clock(),
        )
    )
    assert await waiter == ('login', make())
    another.cancel()
    await asyncio.wait([another])

    assert logins == [0, 10]


@pytest.mark.guarantee('NEW-185')
async def test_closing_of_the_vault_ends_the_task_with_no_error(registry, vault, authenticator):
    kopf.on.login(id='fn', registry=registry)(lambda **_: make())
    await vault.select()

    await vault.close()

    assert await authenticator is None


@pytest.mark.guarantee('AUT-035')
async def test_credentials_given_in_advance_need_no_login(virtual_time, registry, settings):
    kopf.on.login(id='fn', registry=registry)(lambda **_: pytest.fail('is called'))
    vault = vaults.Vault({'given': make()})
    task = asyncio.create_task(
        authentication.run_authentication(
            registry=registry,
            settings=settings,
            vault=vault,
            memo=None,
            indices={},
            now=clocks.Clock(),
        )
    )

    selected = await vault.select()
    await vault.close()
    await task

    assert selected == ('given', make())


@pytest.mark.guarantee('AUT-034', 'NEW-202')
async def test_all_log_lines_can_be_silenced_at_any_time(
    virtual_time, registry, vault, authenticator, caplog
):
    caplog.set_level(logging.DEBUG)

    @kopf.on.login(registry=registry)
    async def login(retry, logger, **_):
        logger.info('Logging in.')
        if retry < 1:
            raise ValueError('boo')
        return make(expiration=clocks.Clock()() + datetime.timedelta(seconds=100))

    await vault.select()
    names = {record.name for record in caplog.records if record.name.startswith('kopf')}
    caplog.clear()
    for name in LOGGERS:
        logging.getLogger(name).disabled = True
    try:
        await asyncio.sleep(200)
        await vault.select()
    finally:
        for name in LOGGERS:
            logging.getLogger(name).disabled = False

    assert names == set(LOGGERS)
    assert not [record for record in caplog.records if record.name.startswith('kopf')]


@pytest.mark.guarantee('AUT-022', 'AUT-024')
async def test_usual_places_are_tried_with_no_handlers_and_no_libraries(
    nowhere, monkeypatch, sandbox, context, authenticator
):
    monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))

    pods = await requests.get('/api/v1/pods', context=context)

    assert pods['items'] == []


@pytest.mark.guarantee('AUT-021', 'AUT-023')
@pytest.mark.parametrize(
    'libraries, expected',
    [
        pytest.param([], ['login_with_service_account', 'login_with_kubeconfig'], id='none'),
        pytest.param(['pykube'], ['login_via_pykube'], id='pykube'),
        pytest.param(['pykube', 'kubernetes'], ['login_via_pykube', 'login_via_client'], id='both'),
    ],
)
def test_all_installed_libraries_are_as_login_handlers(
    nowhere, monkeypatch, registry, libraries, expected
):
    for library in libraries:
        monkeypatch.setitem(sys.modules, library, types.ModuleType(library))

    logins = authentication.select_logins(registry)

    assert [login.id for login in logins] == expected


@pytest.mark.guarantee('NEW-156')
@pytest.mark.parametrize('trust_env', [True, False])
async def test_built_in_logins_get_the_settings(
    nowhere, monkeypatch, sandbox, settings, vault, authenticator, trust_env
):
    monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))
    settings.networking.trust_env = trust_env

    _, info = await vault.select()

    assert info.trust_env is trust_env


@pytest.mark.guarantee('AUT-004')
async def test_usual_places_are_not_tried_if_there_are_handlers(
    nowhere, monkeypatch, sandbox, registry, vault, authenticator
):
    monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))
    kopf.on.login(id='fn', registry=registry)(lambda **_: make())

    assert await vault.select() == ('fn', make())


async def test_logins_that_find_nothing_do_not_claim_success(
    nowhere, virtual_time, vault, authenticator, caplog
):
    caplog.set_level(logging.INFO)
    with pytest.raises(kopf.LoginError, match='kopf run --sandbox'):
        await vault.select()

    told = [record.getMessage() for record in caplog.records]
    assert "Activity 'login_with_kubeconfig' found no credentials." in told
    assert not [text for text in told if 'succeeded' in text]


@pytest.mark.guarantee('AUT-031', 'AUT-033')
async def test_absence_of_all_usual_places_is_explained(
    nowhere, virtual_time, vault, authenticator
):
    with pytest.raises(
        kopf.LoginError,
        match=r'login_with_service_account(.|\n)*login_with_kubeconfig(.|\n)*on.login',
    ):
        await vault.select()

    assert virtual_time.elapsed == 0


async def test_errors_of_usual_places_are_explained_at_once_with_no_retries(
    nowhere, monkeypatch, tmp_path, caplog, vault, authenticator
):
    path = tmp_path / 'broken'
    path.write_text('{}')
    monkeypatch.setenv('KUBECONFIG', str(path))

    with pytest.raises(kopf.LoginError, match='current-context'):
        await vault.select()

    failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(failed) == 1
    assert not failed[0].exc_info


@pytest.mark.guarantee('AUT-007')
async def test_handlers_can_delegate_to_the_built_in_logins(
    nowhere, monkeypatch, sandbox, registry, vault, context, authenticator
):
    monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))

    @kopf.on.login(id='login', registry=registry)
    def login(**kwargs):
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    await requests.get('/api/v1/pods', context=context)
    key, _ = await vault.select()

    assert key == 'login'


@pytest.mark.guarantee('AUT-028', 'AUT-029', 'AUT-032')
async def test_rejected_requests_are_repeated_after_the_next_login(
    sandbox, registry, context, authenticator
):
    logins = []

    @kopf.on.login(registry=registry)
    async def login(**_):
        logins.append(len(sandbox.requests))
        return kopf.ConnectionInfo(
            server=sandbox.url, token='wrong' if len(logins) == 1 else sandbox.token
        )

    pods = await requests.get('/api/v1/pods', context=context)

    assert pods['items'] == []
    assert [asked.code for asked in sandbox.requests] == [401, 200]
    assert logins == [0, 1]  # nothing is asked but what is needed


@pytest.mark.guarantee('AUT-029')
async def test_many_rejected_requests_make_one_login(sandbox, registry, context, authenticator):
    logins = []

    @kopf.on.login(registry=registry)
    async def login(**_):
        logins.append(len(logins))
        return kopf.ConnectionInfo(
            server=sandbox.url, token='wrong' if len(logins) == 1 else sandbox.token
        )

    answers = await asyncio.gather(
        *[requests.get('/api/v1/pods', context=context) for _ in range(5)]
    )

    assert len(answers) == 5
    assert len(logins) == 2


@pytest.mark.guarantee('AUT-030', 'AUT-031')
async def test_requests_fail_when_logins_bring_only_what_is_rejected(
    sandbox, registry, context, authenticator
):
    kopf.on.login(id='fn', registry=registry)(
        lambda **_: kopf.ConnectionInfo(server=sandbox.url, token='wrong')
    )

    with pytest.raises(kopf.LoginError):
        await requests.get('/api/v1/pods', context=context)
    with pytest.raises(kopf.LoginError):
        await authenticator

    assert [asked.code for asked in sandbox.requests] == [401]


@pytest.mark.usefixtures('authenticator')
async def test_credentials_that_expire_often_are_brought_again_in_silence(
    registry, vault, virtual_time, caplog
):
    caplog.set_level(logging.INFO)
    now, calls = clocks.Clock(), []

    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        calls.append('login')
        return make(expiration=now() + datetime.timedelta(seconds=60))

    await vault.select()
    told = [record.getMessage() for record in caplog.records]
    for _ in range(10):
        await asyncio.sleep(100)
        await vault.select()

    assert any('logs in' in text for text in told)
    assert [record.getMessage() for record in caplog.records] == told
    assert len(calls) == 11
