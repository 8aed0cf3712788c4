"""
A running operator does not load what it does not use: each library takes megabytes and tenths of a
second.
"""

import os
import subprocess
import sys

from command_calls import CRD, build_object

import kopf.testing

OPERATOR = """
import os, signal, sys
import kopf

@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)  # otherwise, it is up to the client libraries, if they are installed

@kopf.on.create('kopfexamples')
async def create(**_):
    print('LOADED', *sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)
"""

HEAVY = {'aiohttp', 'cryptography', 'kubernetes', 'prometheus_client', 'pykube'}


def test_heavy_libraries_are_not_loaded_by_a_running_operator(tmp_path):
    path = tmp_path / 'handlers.py'
    path.write_text(OPERATOR)
    with kopf.testing.Sandbox(apply=[CRD, build_object('obj')]) as sandbox:
        done = subprocess.run(
            [sys.executable, '-m', 'kopf', 'run', '--namespace', 'default', str(path)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, 'KUBECONFIG': str(sandbox.kubeconfig)},
        )

    loaded = {name.partition('.')[0] for name in done.stdout.partition('LOADED')[2].split()}
    assert 'kopf' in loaded
    assert loaded & HEAVY == set()
