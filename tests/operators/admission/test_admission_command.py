"""
Operators with admission handlers, as they are run from the command line.
"""

import concurrent.futures
import textwrap

import pytest

import kopf.testing

HANDLER = """
    import kopf

    @kopf.on.validate('kopfexamples')
    def validate(**_):
        pass
"""

SERVER = """
    async def serve(fn):
        if False:
            yield {}

    @kopf.on.startup()
    def configure(settings, **_):
        settings.admission.server = serve
"""

CONTRADICTING_SERVER = """
    @kopf.on.startup()
    def configure(settings, **_):
        settings.admission.server = kopf.WebhookServer(certfile='/no/such/file', pkeyfile='/no/such/file')
"""


@pytest.mark.parametrize(
    'server, message',
    [
        pytest.param(
            '', 'settings.admission.server', id='absent', marks=pytest.mark.guarantee('ADM-051')
        ),
        pytest.param(
            SERVER,
            'The webhook server has ended',
            id='ending',
            marks=pytest.mark.guarantee('ADM-052'),
        ),
        pytest.param(
            CONTRADICTING_SERVER,
            '/no/such/file',
            id='contradicting',
            marks=pytest.mark.guarantee('ADM-052'),
        ),
    ],
)
def test_troubles_with_servers_are_explained_in_one_line(tmp_path, kopf_sandbox, server, message):
    path = tmp_path / 'handlers.py'
    path.write_text(textwrap.dedent(HANDLER) + textwrap.dedent(server))

    env = {'KUBECONFIG': str(kopf_sandbox.kubeconfig)}
    with kopf.testing.KopfRunner(
        ['run', '-A', str(path)], env=env, timeout=60, reraise=False
    ) as runner:
        concurrent.futures.wait([runner.future], timeout=60)

    assert runner.exit_code == 1
    assert message in runner.output.splitlines()[-1]
    assert 'Traceback' not in runner.output
