"""
What the project promises in SECURITY.md, beside what is shown where it belongs: the data of Secrets
(test_secrecy), the probes and the webhooks against slow and oversized requests
(test_probing_server, test_webhook_servers).
"""

import ast
import base64
import json
import os
import pathlib
import re
import signal
import ssl
import stat
import subprocess
import sys
import tempfile
import tomllib

import pytest
import yaml

import kopf
import kopf.testing
from kopf._cogs.helpers import execs
from kopf._sandbox import clusters
from kopf._sandbox.auth import certificates
from kopf._sandbox.codec import manifests

PACKAGE = pathlib.Path(kopf.__file__).parent
ROOT = PACKAGE.parent
EXPLOIT = "!!python/object/apply:os.mkdir ['{path}']\n"

FORBIDDEN = {
    'yaml': {
        'load',
        'load_all',
        'unsafe_load',
        'unsafe_load_all',
        'full_load',
        'full_load_all',
        'UnsafeLoader',
        'FullLoader',
        'Loader',
    },
    'os': {'system', 'popen', 'execv', 'execvp', 'spawnl', 'spawnv'},
    'pickle': None,
    'marshal': None,
    'shelve': None,
    'telnetlib': None,
    'tempfile': {'mktemp'},
    'ssl': {'_create_unverified_context'},
    'subprocess': {'getoutput', 'getstatusoutput'},
}
# With a loader that is safe: see the test of it.
ALLOWED = {('kopf/_sandbox/codec/manifests.py', 'yaml.load_all')}


def find_dangers(path):
    """Find the uses of what is never safe enough, as names in the code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = FORBIDDEN.get(node.value.id, ())
            if names is None or node.attr in names:
                yield f'{node.value.id}.{node.attr}'
        if (
            isinstance(node, ast.keyword)
            and node.arg == 'shell'
            and getattr(node.value, 'value', None) is not False
        ):
            yield 'shell='
        if isinstance(node, ast.Call) and getattr(node.func, 'id', '') in (
            'eval',
            'exec',
            'compile',
        ):
            yield node.func.id


def test_code_has_nothing_dangerous_in_it():
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in PACKAGE.rglob('*.py')
        for name in find_dangers(path)
    }

    assert found == ALLOWED


@pytest.mark.parametrize(
    'code, name',
    [
        pytest.param('import yaml; yaml.load(x)', 'yaml.load', id='yaml'),
        pytest.param('import subprocess; subprocess.run(x, shell=True)', 'shell=', id='shell'),
        pytest.param('import os; os.system(x)', 'os.system', id='system'),
        pytest.param('import pickle; pickle.loads(x)', 'pickle.loads', id='pickle'),
        pytest.param('import tempfile; tempfile.mktemp()', 'tempfile.mktemp', id='temporary-name'),
        pytest.param('eval(x)', 'eval', id='eval'),
    ],
)
def test_dangers_are_recognised(tmp_path, code, name):
    path = tmp_path / 'code.py'
    path.write_text(code)

    assert list(find_dangers(path)) == [name]


def test_manifests_are_loaded_safely(tmp_path):
    target = tmp_path / 'exploited'

    with pytest.raises(kopf.testing.ManifestError):
        manifests.load_sources(
            [f'apiVersion: v1\nkind: ConfigMap\nmetadata: {EXPLOIT.format(path=target)}']
        )

    assert issubclass(
        manifests._make_loader(), (yaml.SafeLoader, getattr(yaml, 'CSafeLoader', yaml.SafeLoader))
    )
    assert not target.exists()


def test_kubeconfigs_are_loaded_safely(tmp_path, monkeypatch):
    target = tmp_path / 'exploited'
    path = tmp_path / 'config'
    path.write_text(f'clusters: {EXPLOIT.format(path=target)}')
    monkeypatch.setenv('KUBECONFIG', str(path))

    with pytest.raises(kopf.LoginError):
        kopf.login_with_kubeconfig()

    assert not target.exists()


def test_arguments_of_exec_plugins_are_not_interpreted(tmp_path):
    target = tmp_path / 'exploited'
    program = tmp_path / 'plugin'
    program.write_text(
        f'#!{sys.executable}\nimport json, sys\n'
        f'status = {{"token": json.dumps(sys.argv[1:])}}\n'
        f'print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
        f'"status": status}}))\n'
    )
    program.chmod(0o700)
    arguments = (f'; touch {target}', f'$(touch {target})', f'`touch {target}`', '*', "a b'c")
    plugin = execs.Plugin(
        command=str(program),
        args=arguments,
        api_version='client.authentication.k8s.io/v1',
        interactive_mode='Never',
    )

    issued = execs.run_plugin(plugin, {}, environ=dict(os.environ))

    assert tuple(json.loads(issued.token)) == arguments
    assert not target.exists()


@pytest.fixture
def temporary_files(monkeypatch, tmp_path):
    """
    All temporary files with their modes: the default rights of new files are as wide as they can
    be.
    """
    made, original = {}, tempfile.mkstemp

    def mkstemp(*args, **kwargs):
        descriptor, path = original(*args, **kwargs)
        made[path] = stat.S_IMODE(os.stat(path).st_mode)
        return descriptor, path

    monkeypatch.setattr(tempfile, 'mkstemp', mkstemp)
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    before = os.umask(0)
    yield made
    os.umask(before)


def test_private_keys_are_in_files_of_their_owner_and_only_for_a_moment(temporary_files):
    authority = certificates.make_ca(clusters.utc_now())
    pair = certificates.issue_client(authority, 'user', [], clusters.utc_now())
    info = kopf.ConnectionInfo(
        server='https://localhost', certificate_data=pair.certificate, private_key_data=pair.key
    )

    assert isinstance(info.as_ssl_context(), ssl.SSLContext)

    assert set(temporary_files.values()) == {0o600}
    assert not any(os.path.exists(path) for path in temporary_files)


PLANTED = [
    'planted-token',
    'planted-password',
    'planted-environment',
    'planted-output',
    'planted-key',
    'planted-proxy',
]
SECRETS = [
    *PLANTED,
    *(base64.b64encode(text.encode()).decode() for text in PLANTED),
    base64.b64encode(b'user:planted-password').decode(),
]

KEY = base64.b64encode(
    b'-----BEGIN PRIVATE KEY-----\nplanted-key\n-----END PRIVATE KEY-----\n'
).decode()


def build_plugin(code):
    return {
        'exec': {
            'apiVersion': 'client.authentication.k8s.io/v1',
            'interactiveMode': 'Never',
            'command': sys.executable,
            'args': ['-c', code],
            'env': [{'name': 'SECRET', 'value': 'planted-environment'}],
        }
    }


ISSUING = (
    'import json; print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
    '"status": {"token": "planted-" + "token"}}))'
)


@pytest.mark.slow
@pytest.mark.parametrize(
    'user, cluster',
    [
        pytest.param({'token': 'planted-token'}, {}, id='wrong-token'),
        pytest.param({'username': 'user', 'password': 'planted-password'}, {}, id='wrong-password'),
        pytest.param(build_plugin(ISSUING), {}, id='wrong-token-of-a-plugin'),
        pytest.param(build_plugin('print("planted-" + "output")'), {}, id='garbage-of-a-plugin'),
        pytest.param(build_plugin('import os; os._exit(3)'), {}, id='failing-plugin'),
        pytest.param({'client-key-data': KEY, 'client-certificate-data': KEY}, {}, id='wrong-key'),
        pytest.param(
            {'token': 'planted-token'},
            {'proxy-url': 'http://user:planted-proxy@127.0.0.1:1'},
            id='dead-proxy',
        ),
        pytest.param(
            {'token': 'planted-token'}, {'server': 'https://127.0.0.1:1'}, id='dead-server'
        ),
    ],
)
def test_credentials_are_never_shown_even_if_they_are_wrong(tmp_path, user, cluster):
    handlers = tmp_path / 'handlers.py'
    handlers.write_text(
        'import kopf\n'
        '@kopf.on.startup()\ndef configure(settings, **_):\n    settings.networking.error_backoffs = [0.1]\n'
        '@kopf.on.login()\ndef login(**kwargs):\n    return kopf.login_with_kubeconfig(**kwargs)\n'
        "@kopf.on.event('pods')\ndef fn(**_): pass\n"
    )
    with kopf.testing.Sandbox(rbac=True) as sandbox:
        config = yaml.safe_load(sandbox.kubeconfig.read_text())
        config['clusters'][0]['cluster'].update(cluster)
        config['users'][0]['user'] = user
        kubeconfig = tmp_path / 'kubeconfig'
        kubeconfig.write_text(yaml.safe_dump(config))
        with subprocess.Popen(
            [sys.executable, '-m', 'kopf', 'run', '--debug', '-A', '--standalone', handlers],
            text=True,
            env={**os.environ, 'KUBECONFIG': str(kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as program:
            output = ''
            for line in program.stdout:  # until it gives up, or says that it tries again
                output += line
                if re.search('will be (asked|tried|repeated|continued)|will try again', line):
                    program.send_signal(signal.SIGTERM)

    assert re.search('logs in|log in|Attempt|credential', output)
    assert [line for line in output.splitlines() if any(secret in line for secret in SECRETS)] == []


def test_dependencies_have_minimal_versions():
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    required = [
        *project['dependencies'],
        *(
            name
            for extra in ('full-auth', 'uvloop', 'dev', 'speed')
            for name in project['optional-dependencies'][extra]
        ),
    ]

    assert [name for name in required if '>=' not in name] == []


def test_audit_is_of_all_extras_but_those_of_developers():
    extras = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project'][
        'optional-dependencies'
    ]

    [audited] = re.findall(
        r"^\.venv-audit/audited: PACKAGES := --editable '\.\[(.+)\]'$",
        (ROOT / 'Makefile').read_text(),
        re.MULTILINE,
    )

    assert sorted(audited.split(',')) == sorted(set(extras) - {'test', 'fuzz', 'lint', 'docs'})


def test_reporting_and_promises_are_described():
    text = (ROOT / 'SECURITY.md').read_text()

    assert re.findall('^#+ (.+)$', text, re.MULTILINE) == [
        'Security',
        'Reporting',
        'What is promised',
        'What is not promised',
        'Threats in short',
        'What was tried',
        'How it is checked',
    ]
