"""
What clients send to the sandbox cannot hang it, exhaust its memory, or end its process.

Before, a pattern such as ``^(a+)+$`` held it for hours, a few lines of aliases in YAML took
gigabytes, and 100,000 brackets ended the process.
"""

import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

import kopf.testing
from kopf._sandbox.codec import manifests

GENEROUS = 10.0  # seconds; it takes milliseconds, and took hours or gigabytes before
CATASTROPHIC = [r'^(a+)+$', r'^(a|aa)+$', r'^(a|a?)+$', r'^([a-z]+)*$', r'(.*)*x$', r'^(\w+\s?)*$']
HEADER = 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n'


def build_laughs(levels=9, width=10, merged=False):
    """A few lines of YAML that stand for a billion of values."""
    lines = ['a0: &a0 {x: y}' if merged else 'a0: &a0 [' + ','.join('x' * width) + ']']
    for level in range(1, levels):
        aliases = ','.join([f'*a{level - 1}'] * width)
        lines.append(
            f'a{level}: &a{level} {{<<: [{aliases}]}}'
            if merged
            else f'a{level}: &a{level} [{aliases}]'
        )
    return '\n'.join(lines) + '\n'


HOSTILE = [
    pytest.param(build_laughs(), 'excessive aliasing', id='billion-laughs'),
    pytest.param(build_laughs(merged=True), 'excessive aliasing', id='merged-laughs'),
    pytest.param(
        f'a: &a "{"x" * 100_000}"\nb: [{"*a," * 60}]\n', 'excessive aliasing', id='long-texts'
    ),
    pytest.param(
        'a: &a\n' + '- \n' * 50_000 + f'b: [{"*a," * 50_000}]\n', 'excessive aliasing', id='nulls'
    ),
    pytest.param('a: &a {b: *a}\n', '', id='loop'),
    pytest.param('a: ' + '[' * 100_000, '', id='nested-brackets'),
    pytest.param('a:\n' + '- ' * 100_000, '', id='nested-dashes'),
    pytest.param('a: ' + '{a: ' * 100_000, '', id='nested-braces'),
]


class Client:
    """A client of the API that is let in."""

    def __init__(self, sandbox):
        self._sandbox = sandbox
        self._context = ssl.create_default_context(cafile=sandbox.ca_path)

    def ask(self, method, path, body, type):
        headers = {'Authorization': f'Bearer {self._sandbox.token}', 'Content-Type': type}
        request = urllib.request.Request(f'{self._sandbox.url}{path}', body, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@pytest.fixture
def client(kopf_sandbox):
    return Client(kopf_sandbox)


def build_crd(pattern):
    schema = {'type': 'object', 'properties': {'text': {'type': 'string', 'pattern': pattern}}}
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': 'things.kopf.dev'},
        'spec': {
            'group': 'kopf.dev',
            'scope': 'Namespaced',
            'names': {'kind': 'Thing', 'plural': 'things'},
            'versions': [
                {
                    'name': 'v1',
                    'served': True,
                    'storage': True,
                    'schema': {'openAPIV3Schema': schema},
                }
            ],
        },
    }


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize('pattern', CATASTROPHIC)
def test_patterns_are_matched_in_linear_time(kopf_sandbox, pattern):
    kopf_sandbox.create(build_crd(pattern))
    thing = {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'Thing',
        'metadata': {'name': 'x'},
        'text': 'a' * 50_000 + '!',
    }

    since = time.monotonic()
    with pytest.raises(kopf.testing.ApiError) as caught:
        kopf_sandbox.create(thing)

    assert time.monotonic() - since < GENEROUS
    assert caught.value.code == 422
    assert f"should match '{pattern}'" in caught.value.message


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize('text, message', HOSTILE)
@pytest.mark.parametrize(
    'method, path, type',
    [
        pytest.param('POST', '', 'application/yaml', id='created'),
        pytest.param('PATCH', '/x?fieldManager=me', 'application/apply-patch+yaml', id='applied'),
    ],
)
def test_hostile_bodies_are_refused(kopf_sandbox, client, method, path, type, text, message):
    since = time.monotonic()
    code, status = client.ask(
        method, f'/api/v1/namespaces/default/configmaps{path}', (HEADER + text).encode(), type
    )

    assert time.monotonic() - since < GENEROUS
    assert (code, status['reason']) == (400, 'BadRequest')
    assert message in status['message']
    names = {body['metadata']['name'] for body in kopf_sandbox.list('configmaps')}
    assert names <= {'kube-root-ca.crt'}  # every cluster has it


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize('text, message', HOSTILE)
def test_hostile_manifests_are_refused(tmp_path, text, message):
    path = tmp_path / 'manifest.yaml'
    path.write_text(HEADER + text)

    done = subprocess.run(
        [sys.executable, '-m', 'kopf', 'sandbox', '--apply', path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert str(path) in done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize(
    'text',
    [
        pytest.param('data: {a: &a "1", b: *a, c: *a}\n', id='values'),
        pytest.param('a: &a {x: "1"}\ndata: {<<: *a, y: "2"}\n', id='merged'),
        pytest.param(f'a: &a [{"x," * 10}]\nb: [{"*a," * 400}]\n', id='up-to-the-limit'),
        pytest.param(f'a: [{"xxx," * 20_000}]\n', id='more-than-the-limit-with-no-aliases'),
        pytest.param('a:\n' + '- \n' * 20_000, id='nothing-but-nulls'),
        pytest.param(f'a: {"[" * 100}{"]" * 100}\n', id='nested'),
    ],
)
def test_what_is_not_hostile_is_read(monkeypatch, text):
    monkeypatch.setattr(manifests, 'MAX_EXPANDED', 10_000)

    [body] = manifests.load_manifests(HEADER + text)

    assert len(body) > 3
