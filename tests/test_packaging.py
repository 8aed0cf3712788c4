"""
The distribution: what is promised to those who install it.
"""
import importlib.metadata
import json
import pathlib
import re
import tomllib

import pytest

import kopf
from kopf._cogs.helpers import versions

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.guarantee('NEW-006')
def test_version_is_told_in_three_ways():
    assert isinstance(kopf.__version__, str)
    assert isinstance(kopf.__version_tuple__, tuple)
    assert '.'.join(map(str, kopf.__version_tuple__)) == kopf.__version__
    assert kopf.__commit_id__ is None or isinstance(kopf.__commit_id__, str)


def test_version_is_the_same_in_the_code_and_in_the_distribution():
    assert importlib.metadata.version('kopf') == kopf.__version__


@pytest.mark.parametrize('origin, expected', [
    pytest.param({'url': 'https://…', 'vcs_info': {'vcs': 'git', 'commit_id': 'abc123'}}, 'abc123', id='repository'),
    pytest.param({'url': 'file:///…', 'dir_info': {'editable': True}}, None, id='directory'),
    pytest.param({'url': 'https://…', 'vcs_info': None}, None, id='unexpected'),
])
def test_commit_is_known_for_installations_from_repositories(monkeypatch, tmp_path, origin, expected):
    dist_info = tmp_path / 'kopf-0.0.0.dist-info'
    dist_info.mkdir()
    (dist_info / 'direct_url.json').write_text(json.dumps(origin))
    distribution = importlib.metadata.PathDistribution(dist_info)
    monkeypatch.setattr(importlib.metadata, 'distribution', lambda name: distribution)

    assert versions.installed_commit() == expected


def test_commit_is_unknown_for_installations_from_archives(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.metadata, 'distribution', lambda name: importlib.metadata.PathDistribution(tmp_path))

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
        'aiohttp', 'click', 'iso8601', 'prometheus-client', 'python-json-logger', 'pyyaml', 'typing-extensions'}


@pytest.mark.guarantee('NEW-004')
@pytest.mark.parametrize('extra, expected', [
    ('full-auth', {'kubernetes', 'pykube-ng'}), ('uvloop', {'uvloop'}), ('dev', {'cryptography', 'pyngrok'}),
])
def test_extras_bring_what_they_are_for(extra, expected):
    brought = [line for line in importlib.metadata.requires('kopf') if re.search(f"extra == ['\"]{extra}['\"]", line)]

    assert {re.match(r'[\w.-]+', line)[0].lower() for line in brought} == expected
