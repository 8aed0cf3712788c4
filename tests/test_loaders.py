"""
Loading of users' files and modules: under which names, from where, and with which errors.
"""

import os
import pathlib
import pickle
import subprocess
import sys
import traceback

import pytest

import kopf
from kopf._cogs.helpers import loaders

ROOT = pathlib.Path(kopf.__file__).parent.parent


@pytest.fixture(autouse=True)
def restored_imports(monkeypatch, tmp_path):
    """Leave no traces of the imports, and have an empty current directory."""
    modules = dict(sys.modules)
    monkeypatch.setattr(sys, 'path', list(sys.path))
    monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
    monkeypatch.setattr(sys, 'dont_write_bytecode', True)
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    sys.modules.update(modules)
    loaders._finder.directories.clear()


@pytest.fixture
def loaded(monkeypatch):
    """What the loaded code has said of itself."""
    monkeypatch.setattr(sys, 'loaded', said := [], raising=False)
    return said


def write(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.guarantee('LOD-001', 'LOD-002', 'LOD-003', 'NEW-251', 'CLI-004')
def test_files_go_first_then_modules_in_the_given_order(loaded, tmp_path):
    for name in ('file1', 'file2', 'package1/module1', 'package2/module2'):
        write(f'{name}.py', f'import sys; sys.loaded.append({name!r})')

    loaders.preload(['file2.py', tmp_path / 'file1.py'], ['package2.module2', 'package1.module1'])

    assert loaded == ['file2', 'file1', 'package2/module2', 'package1/module1']


@pytest.mark.guarantee('LOD-004')
def test_nothing_else_is_loaded(loaded):
    for name in ('handlers', 'main', '__init__', 'package/__init__', 'package/one', 'package/two'):
        write(f'{name}.py', f'import sys; sys.loaded.append({name!r})')

    loaders.preload(['handlers.py'], ['package.one'])

    assert loaded == ['handlers', 'package/__init__', 'package/one']


def test_nothing_is_loaded_if_nothing_is_given():
    before = list(sys.path), set(sys.modules)

    loaders.preload([], [])

    assert (list(sys.path), set(sys.modules)) == before


@pytest.mark.guarantee('NEW-251')
def test_file_is_not_the_main_module(loaded):
    write('handlers.py', 'import sys; sys.loaded.append(__name__)\nif __name__ == "__main__": 1/0')

    module = loaders.load_file('handlers.py')

    assert loaded == [module.__name__]
    assert '.' not in module.__name__
    assert sys.modules[module.__name__] is module
    assert module.__file__ == os.path.abspath('handlers.py')


@pytest.mark.guarantee('NEW-251')
def test_same_file_is_loaded_again_under_another_name(loaded):
    write('handlers.py', 'import sys; sys.loaded.append(__name__)')

    loaders.preload(['handlers.py', './handlers.py'], [])

    assert len(set(loaded)) == 2


def test_same_named_files_of_different_directories_do_not_clash(loaded):
    write('one/handlers.py', 'import sys; sys.loaded.append("one")')
    write('two/handlers.py', 'import sys; sys.loaded.append("two")')

    loaders.preload(['one/handlers.py', 'two/handlers.py'], [])

    assert loaded == ['one', 'two']


@pytest.mark.guarantee('NEW-251')
def test_file_can_import_its_neighbours():
    write('sub/neighbour_of_handlers.py', 'value = 123')
    write('sub/handlers.py', 'import sys; import neighbour_of_handlers as n; path = list(sys.path)')

    module = loaders.load_file('sub/handlers.py')

    assert module.n.value == 123
    assert module.path[0] == os.path.abspath('sub')


def test_directory_is_put_first_only_once():
    write('handlers.py', '')

    loaders.preload(['handlers.py', 'handlers.py'], [])

    assert sys.path.count(os.getcwd()) == 1
    assert sum(isinstance(item, loaders.StandardLibraryFinder) for item in sys.meta_path) == 1


@pytest.mark.parametrize(
    'name', ['with-dash.py', 'with.dots.py', 'with space.py', '1digit.py', 'class.py']
)
def test_any_name_of_a_file_will_do(name, loaded):
    write(name, 'import sys; sys.loaded.append(__name__)')

    module = loaders.load_file(name)

    assert loaded == [module.__name__]


def test_classes_of_files_can_be_pickled():
    write('handlers.py', 'import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: "int"\n')
    module = loaders.load_file('handlers.py')

    assert pickle.loads(pickle.dumps(module.Point(123))) == module.Point(123)


@pytest.mark.guarantee('WLD-017')
def test_file_named_as_a_standard_module_hides_nothing():
    """
    In a process of its own, with a module that is not loaded yet: the neighbour is not taken for
    it.
    """
    write(
        'operator.py',
        'import operator, this_neighbour\n'
        'import statistics, sched\n'
        'print(operator.add(1, 2), this_neighbour.value, statistics.mean([1, 3]), sched.scheduler)',
    )
    write('this_neighbour.py', 'value = "neighbour"')
    write('sched.py', '1/0')
    write('statistics.py', '1/0')
    program = 'from kopf._cogs.helpers import loaders; loaders.preload(["sub/../operator.py"], [])'
    pathlib.Path('sub').mkdir()

    done = subprocess.run(
        [sys.executable, '-P', '-B', '-c', program],
        capture_output=True,
        text=True,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
    )

    assert done.stderr == ''
    assert done.stdout == "3 neighbour 2 <class 'sched.scheduler'>\n"


@pytest.mark.guarantee('CLI-003')
def test_modules_are_looked_for_in_the_current_directory(loaded):
    write('some_package_here/handlers.py', 'import sys; sys.loaded.append(__name__)')

    module = loaders.load_module('some_package_here.handlers')

    assert loaded == ['some_package_here.handlers']
    assert sys.modules['some_package_here.handlers'] is module


@pytest.mark.parametrize(
    'path, message',
    [
        pytest.param('absent.py', "There is no file 'absent.py'.", id='absent'),
        pytest.param(
            'folder',
            "'folder' is a directory, not a file. Packages are loaded by names: -m package.",
            id='dir',
        ),
        pytest.param(
            'notes.txt', "'notes.txt' is not a Python file: its name must end with .py.", id='text'
        ),
        pytest.param(
            'script', "'script' is not a Python file: its name must end with .py.", id='no-suffix'
        ),
        pytest.param('', "There is no file ''.", id='empty'),
    ],
)
def test_wrong_files_are_refused(path, message):
    pathlib.Path('folder').mkdir()
    write('notes.txt', '')
    write('script', '')

    with pytest.raises(loaders.LoadingError) as caught:
        loaders.load_file(path)

    assert str(caught.value) == message


def test_unreadable_file_is_refused(monkeypatch):
    write('handlers.py', '')
    monkeypatch.setattr(os, 'access', lambda path, mode: False)  # the superuser can read everything

    with pytest.raises(
        loaders.LoadingError, match=r"^The file 'handlers.py' cannot be read: permission denied.$"
    ):
        loaders.load_file('handlers.py')


@pytest.mark.parametrize(
    'name, message',
    [
        pytest.param('absent_module', "There is no module 'absent_module'.", id='absent'),
        pytest.param(
            'absent_package.module',
            "There is no module 'absent_package.module'.",
            id='absent-package',
        ),
        pytest.param(
            'some_package.absent',
            "There is no module 'some_package.absent'.",
            id='absent-in-a-package',
        ),
        pytest.param(
            'some_module.py',
            "There is no module 'some_module.py'. Files are given without -m.",
            id='file',
        ),
        pytest.param('', "'' is not a name of a module.", id='empty'),
        pytest.param('.relative', "'.relative' is not a name of a module.", id='relative'),
        pytest.param('dir/file.py', "'dir/file.py' is not a name of a module.", id='path'),
    ],
)
def test_wrong_modules_are_refused(name, message):
    write('some_module.py', '')
    write('some_package/__init__.py', '')

    with pytest.raises(loaders.LoadingError) as caught:
        loaders.load_module(name)

    assert str(caught.value) == message


def test_absence_of_what_a_module_needs_is_an_error_of_the_module():
    write('some_module.py', 'import some_module_dependency')

    with pytest.raises(ModuleNotFoundError, match='some_module_dependency'):
        loaders.load_module('some_module')


@pytest.mark.parametrize(
    'paths, modules',
    [
        pytest.param(['broken.py'], [], id='file'),
        pytest.param([], ['broken'], id='module'),
    ],
)
def test_traceback_of_broken_code_begins_there(paths, modules):
    write('broken.py', 'def fail():\n    1/0\n\nfail()\n')

    with pytest.raises(ZeroDivisionError) as caught:
        loaders.preload(paths, modules)

    frames = traceback.extract_tb(loaders.skip_own_frames(caught.value.__traceback__))
    assert [(os.path.basename(frame.filename), frame.lineno) for frame in frames] == [
        ('broken.py', 4),
        ('broken.py', 2),
    ]


def test_code_that_cannot_be_parsed_has_no_traceback():
    write('broken.py', 'def:')

    with pytest.raises(SyntaxError) as caught:
        loaders.preload(['broken.py'], [])

    assert loaders.skip_own_frames(caught.value.__traceback__) is None


def test_broken_file_is_not_left_half_loaded():
    write('broken.py', '1/0')
    before = set(sys.modules)

    with pytest.raises(ZeroDivisionError):
        loaders.load_file('broken.py')

    assert set(sys.modules) == before
