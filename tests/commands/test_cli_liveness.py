"""
The option ``--liveness``: the probes of an operator that is run by the command.
"""

import json
import socket
import urllib.error
import urllib.request

import pytest
from command_calls import invoke, write

PROBE = """
    import kopf

    @kopf.on.probe()
    def probe_fn(**_):
        return 'fine'
"""


@pytest.fixture
def port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


def wait_until_served(url, running):
    while True:
        try:
            with urllib.request.urlopen(url, timeout=20) as response:
                return json.loads(response.read())
        except urllib.error.URLError:
            assert not running.future.done(), running.future.result().output


@pytest.mark.guarantee('PRB-002', 'PRB-012')
@pytest.mark.parametrize('way', ['option', 'variable'])
def test_probes_are_served(start, sandbox, monkeypatch, port, way):
    path = write('handlers.py', PROBE)
    url = f'http://127.0.0.1:{port}/healthz'
    if way == 'variable':
        monkeypatch.setenv('KOPF_RUN_LIVENESS_ENDPOINT', url)

    running = start(
        '-A', path, *([f'--liveness={url}'] if way == 'option' else []), sandbox=sandbox
    )

    assert wait_until_served(url, running) == {'probe_fn': 'fine'}
    assert running.stop().exit_code == 0


@pytest.mark.guarantee('PRB-003')
@pytest.mark.parametrize(
    'url', ['https://0.0.0.0:8080/healthz', 'localhost:8080', 'http://0.0.0.0:99999/']
)
def test_wrong_endpoints_are_errors_of_usage(url):
    path = write('handlers.py', "raise SystemExit('It is not even loaded.')")

    result = invoke('-A', path, '--liveness', url)

    assert result.exit_code == 2
    assert 'Error: The liveness endpoint' in result.output


def test_busy_port_is_one_clear_line(sandbox):
    path = write('handlers.py', PROBE)
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        sock.listen()
        url = f'http://127.0.0.1:{sock.getsockname()[1]}/healthz'

        result = invoke('-A', path, '--liveness', url)

    assert result.exit_code == 1
    assert (
        f'Error: The liveness endpoint {url} cannot be served: Address already in use'
        in result.output
    )
    assert 'Traceback' not in result.output
