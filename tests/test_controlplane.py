"""
The control plane of the tests itself: what it promises to the tests that need it.
"""

import os
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import controlplanes
import pytest

TESTS = pathlib.Path(__file__).parent
LAUNCHER = f"""
import os, pathlib, sys, signal
sys.path.insert(0, {str(TESTS)!r})
import controlplanes
with controlplanes.run_controlplane(pathlib.Path(sys.argv[1])) as controlplane:
    print(controlplane.url, *controlplane.pids, flush=True)
    signal.pause()
"""

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


def ask(controlplane, user, path):
    """Get something as some user: the code."""
    request = urllib.request.Request(
        controlplane.url + path, headers={'Authorization': f'Bearer {user.token}'}
    )
    try:
        with urllib.request.urlopen(
            request, context=controlplane.build_context(), timeout=10
        ) as response:
            return response.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_admin_may_do_everything_and_the_operator_nothing_of_its_own(own_controlplane):
    path = '/api/v1/namespaces/default/configmaps'

    assert ask(own_controlplane, own_controlplane.admin, path) == 200
    assert ask(own_controlplane, own_controlplane.operator, path) == 403
    assert (
        ask(own_controlplane, controlplanes.Credentials('nobody', 'wrong', pathlib.Path()), path)
        == 401
    )


def test_requests_are_in_the_audit_log_once_they_are_answered(own_controlplane):
    path = '/api/v1/namespaces/default/configmaps/of-the-audit'

    ask(own_controlplane, own_controlplane.operator, path)

    [event] = [event for event in own_controlplane.read_audit() if event['requestURI'] == path]
    assert (event['user']['username'], event['verb'], event['responseStatus']['code']) == (
        'operator',
        'get',
        403,
    )


def test_objects_survive_a_restart_of_the_api_server_and_a_compaction(own_controlplane):
    own_controlplane.compact()
    own_controlplane.stop_apiserver()
    was_down = own_controlplane.ask('/api/v1/namespaces/default') is None
    own_controlplane.start_apiserver()

    assert was_down
    assert own_controlplane.ask('/api/v1/namespaces/default')['metadata']['name'] == 'default'


@pytest.mark.parametrize(
    'ending',
    [
        pytest.param(signal.SIGINT, id='ctrl-c'),
        pytest.param(signal.SIGKILL, id='kill'),
    ],
)
def test_nothing_is_left_running_when_the_starter_is_ended(own_controlplane, tmp_path, ending):
    build = own_controlplane.build
    environment = {**os.environ, 'TMPDIR': str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, '-c', LAUNCHER, str(build)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as starter:
        _, *pids = starter.stdout.readline().split()

        starter.send_signal(ending)
        starter.wait(timeout=60)

    assert len(pids) == 3
    for pid in pids:
        controlplanes.wait_until_ended(int(pid))
    assert ending is signal.SIGKILL or list(tmp_path.iterdir()) == []


def test_failure_to_start_is_explained_and_leaves_nothing(own_controlplane, tmp_path, monkeypatch):
    build = tmp_path / 'build'
    build.mkdir()
    (build / 'etcd').symlink_to(own_controlplane.build / 'etcd')
    (build / 'kube-apiserver').write_text('#!/bin/sh\necho out of order >&2\nexit 3\n')
    (build / 'kube-apiserver').chmod(0o755)
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path / 'temporary'))
    (tmp_path / 'temporary').mkdir()

    with (
        pytest.raises(
            controlplanes.StartError, match=r'kube-apiserver has ended(?s:.*)out of order'
        ),
        controlplanes.run_controlplane(build),
    ):
        pass

    assert list((tmp_path / 'temporary').iterdir()) == []
