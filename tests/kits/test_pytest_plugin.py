"""
The pytest plugin, and the snippets of the documentation, run as operator authors would run them.
"""

import pathlib
import re
import tomllib

import pytest

import kopf
from kopf._kits.commands import sandbox_command

ROOT = pathlib.Path(kopf.__file__).parent.parent


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """Run tests with the plugin, whether it is installed as an entry point or not."""
    monkeypatch.setenv('PYTHONPATH', str(ROOT))

    def run(*sources, **modules):
        pytester.makeini(
            '[pytest]\naddopts = --strict-markers\nasyncio_default_fixture_loop_scope = function'
        )
        pytester.makeconftest('from kopf._kits.pytest_plugin import *  # noqa: F403')
        pytester.makepyfile(*sources, **modules)
        return pytester.runpytest_subprocess()

    return run


def test_plugin_gives_a_sandbox_per_test(run_tests):
    result = run_tests("""
        import pytest
        config = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'cm'}}

        @pytest.mark.parametrize('attempt', [1, 2])
        def test_creation(kopf_sandbox, attempt):
            assert kopf_sandbox.kubeconfig.exists()
            kopf_sandbox.create(config)

        @pytest.mark.kopf_sandbox(tls=False, apply=[config])
        def test_options(kopf_sandbox):
            assert kopf_sandbox.url.startswith('http://')
            assert kopf_sandbox.get('cm', 'cm')
    """)

    result.assert_outcomes(passed=3)


def test_plugin_is_declared_for_pytest():
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']

    assert project['entry-points']['pytest11'] == {'kopf': 'kopf._kits.pytest_plugin'}


@pytest.mark.slow
def test_snippets_of_the_docs_run(run_tests):
    snippets = re.findall(
        r'^```python\n(.*?)^```$', (ROOT / 'docs/sandbox.md').read_text(), re.DOTALL | re.MULTILINE
    )
    modules = {f'test_snippet_{index}': snippet for index, snippet in enumerate(snippets)}

    result = run_tests(**modules)

    result.assert_outcomes(passed=len(snippets))


def test_options_of_the_command_are_in_the_docs():
    text = (ROOT / 'docs/sandbox.md').read_text()
    listed = re.findall(r'^\| (`-.*?) \|', text, re.MULTILINE)
    documented = {name for cell in listed for name in re.findall(r'(?<![\w-])--?[\w-]+', cell)}

    known = {
        name
        for option in sandbox_command.sandbox.params
        for name in (*option.opts, *option.secondary_opts)
    }
    assert documented == known - {'--tls', '--verbose', '--quiet'}
