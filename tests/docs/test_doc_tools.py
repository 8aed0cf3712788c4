"""
What is made by scripts for the documentation: pictures, the list of guarantees, the list of
settings, checks of links.
"""

import dataclasses
import importlib.util
import re
import sys
import xml.etree.ElementTree

import doc_blocks
import pytest

import kopf

TOOLS = doc_blocks.DOCS / 'tools'


def load(name):
    spec = importlib.util.spec_from_file_location(f'doc_tool_{name}', TOOLS / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their modules
    spec.loader.exec_module(module)
    return module


guarantees, links, pictures, settings_reference = map(
    load, ['guarantees', 'links', 'pictures', 'settings_reference']
)

TOPICS = '[ONE]\ntitle = "The first"\nlast = 3\n[TWO]\ntitle = "The second"\nlast = 1\n'


@pytest.fixture
def tests(tmp_path):
    (tmp_path / 'topics.toml').write_text(TOPICS)
    (tmp_path / 'tests/inner').mkdir(parents=True)

    def write(name, text):
        (tmp_path / 'tests' / name).write_text(text)
        return guarantees.render(tmp_path / 'tests', tmp_path / 'topics.toml')

    return write


@pytest.mark.parametrize('name, text', pictures.render().items())
def test_pictures_are_those_that_the_script_makes(name, text):
    assert (doc_blocks.DOCS / 'pictures' / name).read_text() == text
    assert xml.etree.ElementTree.fromstring(text).tag.endswith('svg')


def test_promises_are_listed_with_the_sentences_of_their_tests(tests):
    text = tests(
        'inner/test_x.py',
        "@pytest.mark.guarantee('ONE-002')\nasync def test_it_holds_always(): pass\n",
    )

    assert '- **ONE-002**\n  - it holds always [inner/test_x.py]{.where}\n' in text
    assert 'No test names: ONE-001, ONE-003.' in text
    assert 'Of 4 promises, 1 are shown by 1 tests.' in text
    assert '| ONE | The first | 3 | 1 |' in text


@pytest.mark.parametrize(
    'source',
    [
        pytest.param(
            "pytestmark = [pytest.mark.guarantee('TWO-001')]\ndef test_it(): pass\n", id='module'
        ),
        pytest.param(
            "@pytest.mark.guarantee('TWO-001')\nclass TestIt:\n  def test_it(self): pass\n",
            id='class',
        ),
        pytest.param(
            "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.guarantee('TWO-001'))])\n"
            'def test_it(x): pass\n',
            id='parameter',
        ),
    ],
)
def test_promises_are_found_in_marks_of_all_kinds(tests, source):
    assert '- **TWO-001**\n  - it [test_x.py]{.where}\n' in tests('test_x.py', source)


def test_promises_in_comments_are_not_shown(tests):
    assert 'No test names: TWO-001.' in tests(
        'test_x.py', '"""TWO-001"""\ndef test_it(): pass  # TWO-001\n'
    )


def test_misspelt_promises_are_errors(tests):
    with pytest.raises(ValueError, match=r'TWO-002 \(test_x.py\)'):
        tests('test_x.py', "@pytest.mark.guarantee('TWO-002')\ndef test_it(): pass\n")


def test_promises_of_all_our_tests_are_known():
    text = guarantees.render(doc_blocks.DOCS.parent / 'tests', doc_blocks.DOCS / 'guarantees.toml')

    assert '**HND-001**' in text


def test_all_settings_are_listed_with_their_texts():
    text = settings_reference.render(kopf.OperatorSettings)
    settings = kopf.OperatorSettings()
    names = [
        f'settings.{section.name}.{field.name}'
        for section in dataclasses.fields(settings)
        for field in dataclasses.fields(getattr(settings, section.name))
        if not field.name.startswith('_')
    ]

    assert len(names) > 50
    assert [name for name in names if f'.. py:attribute:: {name}\n' not in text] == []
    assert '.. py:attribute:: settings.execution.max_workers\n   :type: int | None\n' in text
    assert [
        entry for entry in text.split('.. py:attribute::')[1:] if not re.search(r'\n\n   \w', entry)
    ] == []


@pytest.mark.parametrize(
    'body, expected',
    [
        pytest.param('<a href="other.html#here">', [], id='anchor'),
        pytest.param('<a href="#mine"><p id="mine">', [], id='own-anchor'),
        pytest.param('<a href="https://example.com/">', [], id='host'),
        pytest.param(
            '<a href="absent.html">',
            ['page.html: absent.html: there is no such file'],
            id='no-file',
        ),
        pytest.param(
            '<img src="x.svg">', ['page.html: x.svg: there is no such file'], id='no-picture'
        ),
        pytest.param(
            '<a href="other.html#x">',
            ['page.html: other.html#x: there is no such anchor'],
            id='no-anchor',
        ),
    ],
)
def test_broken_links_are_found_in_built_pages(tmp_path, body, expected):
    (tmp_path / 'other.html').write_text('<h1 id="here">')
    (tmp_path / 'page.html').write_text(body)
    broken, _ = links.check(tmp_path.resolve())

    assert broken == expected
