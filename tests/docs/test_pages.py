"""
The documentation as a whole: all pages are there, can be reached, and lead somewhere.
"""

import os
import pathlib
import re
import shutil
import subprocess

import doc_blocks
import doc_links
import pytest

import kopf.cli
import kopf.testing

ROOT = doc_blocks.DOCS.parent
LANGUAGES = {
    'bash',
    'console',
    'dockerfile',
    'ini',
    'json',
    'promql',
    'python',
    'sh',
    'text',
    'toml',
    'yaml',
}
FILES = sorted(
    [
        *ROOT.glob('*.md'),
        *(ROOT / 'examples').rglob('*.md'),
        *(ROOT / 'benchmarks').rglob('*.md'),
        *(doc_blocks.DOCS / f'{page}.md' for page in doc_blocks.list_pages()),
    ]
)


def list_toctree():
    text = (doc_blocks.DOCS / 'index.md').read_text()
    blocks = re.findall(r'^```\{toctree\}\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    return [
        line for block in blocks for line in block.splitlines() if line and not line.startswith(':')
    ]


def test_all_pages_are_in_the_table_of_contents_once():
    assert sorted(list_toctree()) == [page for page in doc_blocks.list_pages() if page != 'index']


@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_pages_have_one_title_in_the_beginning(page):
    text = doc_links.FENCED.sub('', (doc_blocks.DOCS / f'{page}.md').read_text())

    assert text.startswith('# ')
    assert len(re.findall(r'^# ', text, re.MULTILINE)) == 1


@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_lines_of_pages_are_not_too_long(page):
    lines = doc_links.FENCED.sub('', (doc_blocks.DOCS / f'{page}.md').read_text()).splitlines()

    assert [line for line in lines if len(line) > 145 and not line.startswith('|')] == []


@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_code_in_pages_is_in_known_languages(page):
    blocks = doc_blocks.parse_blocks((doc_blocks.DOCS / f'{page}.md').read_text())

    assert {block.language for block in blocks} <= LANGUAGES


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_what_exists(path):
    assert list(doc_links.find_broken(path, ROOT)) == []


@pytest.mark.parametrize(
    'text, expected',
    [
        pytest.param('[x](there.md)', [], id='file'),
        pytest.param('[x](there.md#one-two--three)', [], id='heading'),
        pytest.param('[x](there.md#again-1)', [], id='repeated-heading'),
        pytest.param('[x](there.md#label)', [], id='label'),
        pytest.param('[x](https://example.com/nowhere)', [], id='host'),
        pytest.param('`[x](nowhere.md)`', [], id='code'),
        pytest.param('```\n[x](nowhere.md)\n```\n', [], id='block'),
        pytest.param('[x](nowhere.md)', ['nowhere.md'], id='no-file'),
        pytest.param('[x](there.md#four)', ['there.md#four'], id='no-heading'),
        pytest.param('[x](#here)', ['#here'], id='no-heading-here'),
    ],
)
def test_broken_links_are_found(tmp_path, text, expected):
    (tmp_path / 'there.md').write_text(
        '# One, two & three\n## Again\n## Again\n(label)=\n```\n# Four\n```\n'
    )
    (tmp_path / 'here.md').write_text(text)

    assert list(doc_links.find_broken(tmp_path / 'here.md', tmp_path)) == expected


def test_all_public_names_are_in_the_reference():
    text = (doc_blocks.DOCS / 'api.md').read_text()
    decorators = re.findall(r'^def ([a-z]\w+)', (ROOT / 'kopf/on.py').read_text(), re.MULTILINE)
    names = {
        f'{module.__name__}.{name}'
        for module in (kopf, kopf.cli, kopf.testing)
        for name in module.__all__
    }
    names -= {
        'kopf.on',
        'kopf.lifecycles',
        *(f'kopf.{name}' for name in decorators if name != 'event'),
    }
    names |= {f'kopf.on.{name}' for name in decorators}

    assert {name for name in names if not re.search(rf'{re.escape(name)}\b', text)} == set()
    assert {
        name
        for name in re.findall(r'auto\w+:: (kopf\.[A-Za-z]\w*)$', text, re.MULTILINE)
        if not hasattr(kopf, name.removeprefix('kopf.'))
    } == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    'page, peerings',
    [
        pytest.param('peering', {'default': 'default'}, id='peering'),
        pytest.param('deployment', {'example-operator': 'kopf-example'}, id='deployment'),
    ],
)
def test_peering_is_applied_by_kubectl_at_the_first_attempt(
    kubectl_path, kopf_sandbox, page, peerings
):
    text = (doc_blocks.DOCS / f'{page}.md').read_text()
    commands = re.findall(r'^kubectl ((?:apply|wait) .*)$', text, re.MULTILINE)

    for command in commands:
        done = subprocess.run(
            [kubectl_path, *command.split()],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, 'KUBECONFIG': str(kopf_sandbox.kubeconfig)},
        )
        assert (done.returncode, done.stderr) == (0, ''), command

    assert len(commands) >= 3
    for name, namespace in peerings.items():
        assert kopf_sandbox.get('clusterkopfpeerings', name)
        assert kopf_sandbox.get('kopfpeerings', name, namespace)


def test_roles_can_be_checked_as_the_page_of_deployment_tells(tmp_path, monkeypatch):
    (block,) = doc_blocks.read_blocks('deployment', 'python')
    for name in ('examples', 'deploy'):
        shutil.copytree(ROOT / name, tmp_path / name)
    pathlib.Path(tmp_path, 'handlers.py').write_text(
        "import kopf\n@kopf.on.create('kopfexamples')\ndef create_fn(**_): return 'done'\n"
    )
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(block.code, namespace)

    namespace['test_roles']()


async def test_finalizer_removed_by_hand_from_a_living_object_is_put_back(virtual_time):
    registry = kopf.OperatorRegistry()
    kopf.on.delete('kopfexamples', registry=registry)(lambda **_: None)
    manifests = [ROOT / 'examples/crd.yaml', ROOT / 'examples/obj.yaml']
    async with (
        kopf.testing.Sandbox(apply=manifests) as sandbox,
        kopf.testing.Operator(sandbox, registry=registry),
    ):
        name = 'kopf-example-1'
        await sandbox.wait('kopfexamples', name, lambda body: body['metadata'].get('finalizers'))
        await sandbox.patch('kopfexamples', name, {'metadata': {'finalizers': []}})
        body = await sandbox.wait(
            'kopfexamples', name, lambda body: body['metadata'].get('finalizers')
        )

    assert body['metadata']['finalizers'] == ['kopf.zalando.org/KopfFinalizerMarker']
