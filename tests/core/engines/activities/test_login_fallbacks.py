"""
Falling back: logins by broken libraries are passed over, and the next ways to log in are tried.
"""

import asyncio
import contextlib
import logging
import sys

import kubernetes
import kubernetes_asyncio
import pytest
import yaml

import kopf
import kopf.testing
from kopf._cogs.aiokits import clocks
from kopf._cogs.clients import limits, requests
from kopf._cogs.structs import credentials, memos, vaults
from kopf._core.engines.activities import authentication
from kopf._core.intents import piggybacking

BROKEN = 'raise ImportError("boo!")'


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """Neither in a pod, nor with a kubeconfig, nor with any libraries."""
    monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', str(tmp_path / 'serviceaccount'))
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    for name in ('KUBECONFIG', 'KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT'):
        monkeypatch.delenv(name, raising=False)
    for library in ('pykube', 'kubernetes', 'kubernetes_asyncio'):
        monkeypatch.setitem(sys.modules, library, None)


@pytest.fixture
def break_libraries(tmp_path, monkeypatch):
    """Install libraries that cannot be imported, with these sources."""

    def break_libraries(**sources):
        for library, source in sources.items():
            monkeypatch.delitem(sys.modules, library)
            directory = tmp_path / 'packages' / library
            directory.mkdir(parents=True)
            (directory / '__init__.py').write_text(source)
        monkeypatch.syspath_prepend(tmp_path / 'packages')

    return break_libraries


@pytest.fixture
def install(monkeypatch):
    """Install a library as it is; its global configuration is restored afterwards."""

    def install(library):
        monkeypatch.setitem(sys.modules, library.__name__, library)
        monkeypatch.setattr(library.client.Configuration, '_default', None)

    return install


@pytest.fixture
def write_token(tmp_path):
    """Be in a pod with this token of the service account."""

    def write_token(token):
        (tmp_path / 'serviceaccount').mkdir()
        (tmp_path / 'serviceaccount' / 'token').write_text(token)

    return write_token


@pytest.fixture
async def sandbox(monkeypatch):
    """A cluster with a kubeconfig that is found."""
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))
        yield sandbox


@pytest.fixture
async def vault(registry, settings):
    """Credentials that are brought when needed, as in an operator."""
    vault = vaults.Vault(now=clocks.Clock())
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
    yield vault
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, credentials.LoginError):
        await task
    await vault.close()


@pytest.fixture
def get_pods(vault, settings):
    context = requests.Context(vault, settings, logging.getLogger('kopf.test'), limits.Gates())
    return lambda: requests.get('/api/v1/pods', context=context)


@pytest.fixture
def complaints(caplog):
    """List the levels and texts of what is logged as warnings or worse, always in one line."""

    def list_complaints():
        assert not [record for record in caplog.records if record.exc_info]
        records = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert {record.name for record in records} <= {'kopf.activities.authentication'}
        return [(record.levelname, record.getMessage()) for record in records]

    return list_complaints


@pytest.mark.guarantee('FND-017')
@pytest.mark.parametrize(
    'source, error',
    [
        pytest.param('raise ImportError("boo!")', 'ImportError: boo!', id='import'),
        pytest.param(
            'import no_such_library', 'ModuleNotFoundError: No module named', id='dependency'
        ),
        pytest.param('raise AttributeError("boo!")', 'AttributeError: boo!', id='attribute'),
        pytest.param('def broken(', 'SyntaxError: ', id='syntax'),
        pytest.param('raise Exception("boo!")', 'Exception: boo!', id='anything'),
    ],
)
@pytest.mark.parametrize('library', ['pykube', 'kubernetes', 'kubernetes_asyncio'])
@pytest.mark.usefixtures('sandbox')
async def test_broken_library_is_passed_over_with_one_line_and_the_kubeconfig_is_used(
    break_libraries, get_pods, complaints, library, source, error
):
    break_libraries(**{library: source})

    pods = await get_pods()

    [(level, text)] = complaints()
    assert pods['items'] == []
    assert level == 'WARNING'
    assert f'The library {library!r} is installed, but cannot be imported: {error}' in text


@pytest.mark.guarantee('FND-017')
async def test_broken_libraries_are_passed_over_and_the_service_account_is_used(
    monkeypatch, break_libraries, write_token, sandbox, vault, get_pods
):
    monkeypatch.delenv('KUBECONFIG')
    monkeypatch.setattr(piggybacking, '_DEFAULT_SERVER', sandbox.url)
    write_token(sandbox.token)
    break_libraries(pykube=BROKEN, kubernetes=BROKEN)

    pods = await get_pods()
    key, _ = await vault.select()

    assert pods['items'] == []
    assert key == 'login_with_service_account'


@pytest.mark.guarantee('FND-017')
@pytest.mark.parametrize(
    'broken, good, expected',
    [
        pytest.param('pykube', kubernetes, 'login_via_client', id='another'),
        pytest.param('kubernetes', kubernetes_asyncio, 'login_via_async_client', id='twin'),
    ],
)
@pytest.mark.usefixtures('sandbox')
async def test_broken_library_is_passed_over_and_another_one_is_used(
    break_libraries, install, vault, complaints, broken, good, expected
):
    install(good)
    break_libraries(**{broken: BROKEN})

    key, _ = await vault.select()

    assert key == expected
    assert [level for level, _ in complaints()] == ['WARNING']


@pytest.mark.guarantee('FND-017')
@pytest.mark.parametrize(
    'error',
    [
        kubernetes.config.ConfigException('boo!'),
        KeyError('boo!'),
        TypeError('boo!'),
        yaml.YAMLError('boo!'),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.usefixtures('sandbox')
async def test_library_that_cannot_be_configured_is_passed_over_with_one_line(
    monkeypatch, install, vault, complaints, error
):
    def fail(**_):
        raise error

    install(kubernetes)
    monkeypatch.setattr(kubernetes.config, 'load_kube_config', fail)

    key, _ = await vault.select()

    [(level, text)] = complaints()
    assert key == 'login_with_kubeconfig'
    assert level == 'WARNING'
    assert "The library 'kubernetes'" in text
    assert f'{type(error).__name__}: ' in text


@pytest.mark.guarantee('FND-017')
@pytest.mark.usefixtures('virtual_time')
async def test_broken_library_is_told_of_once_when_credentials_expire_often(
    monkeypatch, break_libraries, write_token, vault, complaints
):
    monkeypatch.setattr(piggybacking, '_read_clock', clocks.Clock())
    write_token('token')
    break_libraries(pykube=BROKEN)

    for _ in range(10):
        await vault.select()
        await asyncio.sleep(100)

    assert [level for level, _ in complaints()] == ['WARNING']


@pytest.mark.guarantee('FND-017', 'AUT-033')
async def test_failure_of_all_ways_names_them_all(
    virtual_time, monkeypatch, break_libraries, vault, tmp_path
):
    (tmp_path / 'broken').write_text('{}')
    monkeypatch.setenv('KUBECONFIG', str(tmp_path / 'broken'))
    break_libraries(
        pykube='raise ImportError("one")',
        kubernetes='raise KeyError("two")',
        kubernetes_asyncio='def three(',
    )

    with pytest.raises(kopf.LoginError) as caught:
        await vault.select()

    lines = str(caught.value).splitlines()[1:-1]
    expected = [
        ('login_via_pykube', 'ImportError: one'),
        ('login_via_client', 'KeyError: '),
        ('login_via_async_client', 'SyntaxError: '),
        ('login_with_service_account', 'not applicable'),
        ('login_with_kubeconfig', 'current-context'),
    ]
    assert len(lines) == len(expected)
    assert all(
        f'  {id}: ' in line and text in line
        for (id, text), line in zip(expected, lines, strict=True)
    )
    assert virtual_time.elapsed == 0


@pytest.mark.guarantee('FND-017', 'AUT-004', 'AUT-007')
@pytest.mark.usefixtures('sandbox')
async def test_nothing_else_is_tried_if_a_handler_asks_for_the_broken_library(
    break_libraries, registry, vault
):
    break_libraries(kubernetes=BROKEN)

    @kopf.on.login(id='login', registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    def login(**kwargs):
        return kopf.login_via_client(**kwargs)

    with pytest.raises(
        kopf.LoginError,
        match=r"login: The library 'kubernetes' is installed, but cannot be imported",
    ):
        await vault.select()


@pytest.mark.guarantee('FND-017', 'NEW-175')
@pytest.mark.usefixtures('sandbox')
async def test_nothing_else_is_tried_if_a_library_brings_credentials(install, vault):
    install(kubernetes)

    keys = {(await vault.select())[0] for _ in range(100)}

    assert keys == {'login_via_client'}
