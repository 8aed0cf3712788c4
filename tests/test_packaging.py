"""
The distribution: what is promised to those who install it.
"""

import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import packaging.requirements
import packaging.version
import pytest

import kopf
import kopf.testing
from kopf._cogs.clients.http import models
from kopf._cogs.helpers import versions

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.guarantee('NEW-006')
def test_version_is_told_in_three_ways():
    assert isinstance(kopf.__version__, str)
    assert isinstance(kopf.__version_tuple__, tuple)
    assert kopf.__version_tuple__ == tuple(
        int(part) if part.isdigit() else part for part in re.split(r'[.+]', kopf.__version__)
    )
    assert kopf.__commit_id__ is None or isinstance(kopf.__commit_id__, str)


@pytest.mark.parametrize(
    'requirement',
    ['kopf', 'kopf>=1.37', 'kopf>=1.45.2', 'kopf==1.45.2', 'kopf~=1.45', 'kopf[dev]>=1.35,<2'],
)
def test_requirements_of_existing_operators_are_satisfied(requirement):
    parsed = packaging.requirements.Requirement(requirement)

    assert kopf.__version__ in parsed.specifier


def test_version_is_newer_than_that_of_kopf_and_can_be_compared_by_parts():
    version = packaging.version.Version(kopf.__version__)

    assert str(version) == kopf.__version__  # in its normal form, as in the names of the archives
    assert version.public == '1.45.2'
    assert re.fullmatch(r'r[1-9]\d*', version.local)
    assert version > packaging.version.Version('1.45.2')
    assert kopf.__version_tuple__ > (1, 45, 2)


@pytest.mark.guarantee('NEW-157')
def test_version_is_fit_for_headers():
    assert re.fullmatch(r"kopf/[\w!#$%&'*+.^`|~-]+", models.USER_AGENT, re.ASCII)


def test_version_is_the_same_in_the_code_and_in_the_distribution():
    assert importlib.metadata.version('kopf') == kopf.__version__


@pytest.mark.parametrize(
    'origin, expected',
    [
        pytest.param(
            {'url': 'https://…', 'vcs_info': {'vcs': 'git', 'commit_id': 'abc123'}},
            'abc123',
            id='repository',
        ),
        pytest.param({'url': 'file:///…', 'dir_info': {'editable': True}}, None, id='directory'),
        pytest.param({'url': 'https://…', 'vcs_info': None}, None, id='unexpected'),
    ],
)
def test_commit_is_known_for_installations_from_repositories(
    monkeypatch, tmp_path, origin, expected
):
    dist_info = tmp_path / 'kopf-0.0.0.dist-info'
    dist_info.mkdir()
    (dist_info / 'direct_url.json').write_text(json.dumps(origin))
    distribution = importlib.metadata.PathDistribution(dist_info)
    monkeypatch.setattr(importlib.metadata, 'distribution', lambda name: distribution)

    assert versions.installed_commit() == expected


def test_commit_is_unknown_for_installations_from_archives(monkeypatch, tmp_path):
    monkeypatch.setattr(
        importlib.metadata,
        'distribution',
        lambda name: importlib.metadata.PathDistribution(tmp_path),
    )

    assert versions.installed_commit() is None


def test_commit_is_unknown_when_not_installed(monkeypatch):
    def distribution(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, 'distribution', distribution)

    assert versions.installed_commit() is None


@pytest.mark.guarantee('NEW-007')
def test_types_are_declared():
    assert (pathlib.Path(kopf.__file__).parent / 'py.typed').is_file()


@pytest.mark.guarantee('NEW-001')
def test_oldest_python_is_the_same_everywhere():
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())

    assert project['project']['requires-python'] == '>=3.11'
    assert project['tool']['mypy']['python_version'] == '3.11'
    assert project['tool']['ruff']['target-version'] == 'py311'


@pytest.mark.guarantee('NEW-004')
def test_extras_of_the_documentation_are_there():
    extras = set(importlib.metadata.metadata('kopf').get_all('Provides-Extra'))

    assert {'full-auth', 'uvloop', 'dev', 'speed', 'test'} <= extras


@pytest.mark.guarantee('NEW-003')  # with our own choice of them
def test_mandatory_dependencies_are_few():
    required = [line for line in importlib.metadata.requires('kopf') if 'extra ==' not in line]

    assert {re.match(r'[\w.-]+', line)[0].lower().replace('_', '-') for line in required} == {
        'aiohappyeyeballs',
        'aiohttp',
        'click',
        'httptools',
        'iso8601',
        'prometheus-client',
        'python-json-logger',
        'pyyaml',
        'typing-extensions',
    }


@pytest.mark.guarantee('NEW-004')
@pytest.mark.parametrize(
    'extra, expected',
    [
        ('full-auth', {'kubernetes', 'pykube-ng'}),
        ('uvloop', {'uvloop'}),
        ('dev', {'cel-expr-python', 'cryptography', 'google-re2', 'pyngrok'}),
        ('tunnels', {'pyngrok'}),
    ],
)
def test_extras_bring_what_they_are_for(extra, expected):
    brought = [
        line
        for line in importlib.metadata.requires('kopf')
        if re.search(f'extra == [\'"]{extra}[\'"]', line)
    ]

    assert {re.match(r'[\w.-]+', line)[0].lower() for line in brought} == expected


@pytest.mark.guarantee('FND-064')
def test_whatever_is_required_is_imported():
    modules = {
        'aiohappyeyeballs': 'aiohappyeyeballs',
        'aiohttp': 'aiohttp',
        'click': 'click',
        'httptools': 'httptools',
        'iso8601': 'iso8601',
        'prometheus-client': 'prometheus_client',
        'python-json-logger': 'pythonjsonlogger',
        'pyyaml': 'yaml',
        'typing-extensions': 'typing_extensions',
    }
    required = {
        re.match(r'[\w.-]+', line)[0].lower().replace('_', '-')
        for line in importlib.metadata.requires('kopf')
        if 'extra ==' not in line
    }
    code = '\n'.join(path.read_text() for path in pathlib.Path(kopf.__file__).parent.rglob('*.py'))

    assert required == set(modules)
    assert [
        name
        for name in modules.values()
        if not re.search(rf'^\s*(import|from) {name}\b', code, re.M)
    ] == []


@pytest.mark.guarantee('FND-064')
@pytest.mark.parametrize(
    'library, floor',
    [  # the first versions without the vulnerabilities that are known
        ('aiohttp', (3, 13, 3)),
        ('pyyaml', (5, 4)),
        ('python-json-logger', (3, 3)),
        ('cryptography', (46, 0, 5)),
        ('orjson', (3, 11, 6)),
    ],
)
def test_versions_with_known_vulnerabilities_are_not_accepted(library, floor):
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    lines = [
        line
        for group in (project['dependencies'], *project['optional-dependencies'].values())
        for line in group
    ]
    floors = [
        line.partition('>=')[2] for line in lines if re.match(r'[\w-]+', line)[0].lower() == library
    ]

    assert floors
    assert all(tuple(map(int, version.split('.'))) >= floor for version in floors)


def call(*command, **kwargs):
    """Run a command; return all that it says. It must succeed."""
    result = subprocess.run(
        [os.fspath(arg) for arg in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        **kwargs,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def install(directory, requirement):
    """
    Install it to a new environment, in which there is nothing else; return the directory of its
    commands.
    """
    call(sys.executable, '-m', 'venv', '--without-pip', directory)
    call(
        sys.executable,
        '-m',
        'pip',
        '--python',
        directory / 'bin/python',
        '--disable-pip-version-check',
        'install',
        '--quiet',
        '--no-compile',
        requirement,
    )
    return directory / 'bin'


@pytest.fixture(scope='session')
def distributions(tmp_path_factory):
    """The built archives: the source one, and the wheel that is built from it."""
    directory = tmp_path_factory.mktemp('dist')
    call(sys.executable, '-m', 'build', '--no-isolation', '--outdir', directory, ROOT)
    (sdist,), (wheel,) = directory.glob('*.tar.gz'), directory.glob('*.whl')
    return sdist, wheel


@pytest.mark.slow
def test_archives_are_fit_for_uploading(distributions):
    said = call(sys.executable, '-m', 'twine', '--no-color', 'check', '--strict', *distributions)

    assert said.count('PASSED') == 2
    assert 'WARNING' not in said


@pytest.mark.slow
@pytest.mark.guarantee('NEW-007')
def test_wheel_has_the_package_and_nothing_else(distributions):
    _, wheel = distributions
    names = zipfile.ZipFile(wheel).namelist()
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / 'kopf').rglob('*')
        if path.is_file() and '__pycache__' not in path.parts and '/.' not in path.as_posix()
    }

    assert {name for name in names if '.dist-info/' not in name} == sources
    assert 'kopf/py.typed' in names


@pytest.mark.slow
def test_source_archive_has_all_that_is_needed_to_work_on_it_and_nothing_that_is_built(
    distributions,
):
    sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}

    assert {
        'pyproject.toml',
        'README.md',
        'LICENSE',
        'CHANGELOG.md',
        'Makefile',
        'Dockerfile',
        'peering.yaml',
        'peering-default.yaml',
        'tests/conftest.py',
        'docs/conf.py',
        'deploy/deployment.yaml',
        'examples/crd.yaml',
    } <= names
    assert not [
        name for name in names if re.search(r'__pycache__|docs/_(build|generated)|\.venv', name)
    ]


@pytest.mark.slow
@pytest.mark.guarantee('NEW-004', 'NEW-005', 'NEW-243')
@pytest.mark.parametrize('extra', ['full-auth', 'uvloop', 'dev', 'speed'])
def test_wheel_is_installed_with_each_extra_to_an_empty_environment(distributions, tmp_path, extra):
    _, wheel = distributions
    commands = install(tmp_path / 'env', f'{wheel}[{extra}]')

    expected = f'kopf, version {kopf.__version__} (an API-compatible rebuild of Kopf 1.45.2)\n'
    assert call(commands / 'kopf', '--version', cwd=tmp_path) == expected
    assert call(commands / 'python', '-m', 'kopf', '--version', cwd=tmp_path) == expected
    call(sys.executable, '-m', 'pip', '--python', commands / 'python', 'check')


@pytest.mark.slow
@pytest.mark.guarantee('DEP-001', 'NEW-001')
def test_bare_installation_is_enough_to_run_operators(distributions, tmp_path):
    _, wheel = distributions
    commands = install(tmp_path / 'env', wheel)
    (tmp_path / 'handlers.py').write_text(
        "import kopf\n@kopf.on.create('kopfexamples')\ndef create_fn(**_): return 'created'\n"
    )
    with kopf.testing.Sandbox(
        apply=[ROOT / 'examples/crd.yaml', ROOT / 'examples/obj.yaml']
    ) as sandbox:
        process = subprocess.Popen(
            [commands / 'kopf', 'run', tmp_path / 'handlers.py', '--verbose', '--all-namespaces'],
            cwd=tmp_path,
            env={**os.environ, 'KUBECONFIG': str(sandbox.kubeconfig)},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            body = sandbox.wait(
                'kopfexamples',
                'kopf-example-1',
                lambda body: 'create_fn' in body.get('status', {}),
                timeout=60,
            )
            process.terminate()
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()

    assert body['status']['create_fn'] == 'created'
    assert process.returncode == 0, said


@pytest.mark.slow
def test_long_description_is_the_readme(distributions):
    _, wheel = distributions
    metadata = zipfile.ZipFile(wheel).read(f'kopf-{kopf.__version__}.dist-info/METADATA').decode()

    assert 'Description-Content-Type: text/markdown' in metadata
    assert metadata.endswith((ROOT / 'README.md').read_text())


@pytest.mark.parametrize('field', ['Home-page', 'Download-URL', 'Project-URL'])
def test_no_addresses_are_made_up(field):
    assert not importlib.metadata.metadata('kopf').get_all(field)
