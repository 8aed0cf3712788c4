"""
Loaders: import the code of users by file paths and module names, for the handlers it declares.

If there is nothing to load, `LoadingError` is raised; errors of the code itself are raised as they
are. Only the given files and modules are imported, and whatever they import.
"""

import errno
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import re
import sys
import types
from collections.abc import Iterable, Sequence

_PREFIX = '__kopf_script_'
_numbers = itertools.count(1)


class LoadingError(Exception):
    """There is no code at this path or under this name; the cause is the error of Python."""


class StandardLibraryFinder:
    """
    A finder that prefers modules of the standard library to same-named files in these directories.

    Otherwise, as the directories come first on the path, a file named e.g. ``queue.py`` would break
    the libraries.
    """

    def __init__(self) -> None:
        self.directories: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or name not in sys.stdlib_module_names:
            return None
        return importlib.machinery.PathFinder.find_spec(
            name, [entry for entry in sys.path if entry not in self.directories], target
        )


_finder = StandardLibraryFinder()


def preload(paths: Iterable[str | os.PathLike[str]], modules: Iterable[str]) -> None:
    """
    Import the files, then the modules, in the given order.

    A file is a new module each time, with a unique name, and can import its neighbours; a module is
    imported once per process, and is also searched for in the current directory.
    """
    for path in paths:
        load_file(path)
    for name in modules:
        load_module(name)


def load_file(path: str | os.PathLike[str]) -> types.ModuleType:
    """Import a file, not as ``__main__``. Raises `LoadingError` if it is absent or not Python."""
    full_path = os.path.abspath(path)
    if not os.path.exists(path):
        absence = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), full_path)
        raise LoadingError(f'There is no file {os.fspath(path)!r}.') from absence

    if os.path.isdir(full_path):
        mistake = (
            f'{os.fspath(path)!r} is a directory, not a file. Packages are loaded by names: -m '
            'package.'
        )
        raise LoadingError(mistake) from ImportError(mistake, path=full_path)

    # Without dots: the module has no parents.
    stem = re.sub(r'\W', '_', os.path.splitext(os.path.basename(full_path))[0])
    spec = importlib.util.spec_from_file_location(f'{_PREFIX}{next(_numbers)}_{stem}__', full_path)
    if spec is None or spec.loader is None:
        mistake = f'{os.fspath(path)!r} is not a Python file: its name must end with .py.'
        raise LoadingError(mistake) from ImportError(mistake, path=full_path)

    if not os.access(full_path, os.R_OK):
        denial = PermissionError(errno.EACCES, os.strerror(errno.EACCES), full_path)
        raise LoadingError(
            f'The file {os.fspath(path)!r} cannot be read: permission denied.'
        ) from denial

    _put_first(os.path.dirname(full_path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for lookups of modules by classes, e.g. pickling

    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise

    return module


def is_script(name: str) -> bool:
    """Return whether the module was loaded as a file: it is never loaded under this name again."""
    return name.startswith(_PREFIX)


def load_module(name: str) -> types.ModuleType:
    """Import a module by its name. Raises `LoadingError` if it is absent or the name is invalid."""
    if not all(part.isidentifier() for part in name.split('.')):
        mistake = f'{name!r} is not a name of a module.'
        raise LoadingError(mistake) from ModuleNotFoundError(mistake, name=name)

    if not sys.flags.safe_path:
        _put_first(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is None or not f'{name}.'.startswith(f'{e.name}.'):
            raise  # the missing module is not this one, but one of its imports
        hint = ' Files are given without -m.' if name.endswith('.py') else ''
        raise LoadingError(f'There is no module {name!r}.{hint}') from e


def skip_own_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Skip the frames that led to the code of users; return ``None`` if it cannot be parsed."""
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next

    is_loading = [frame.tb_frame.f_code.co_filename == __file__ for frame in frames]
    since = len(frames) - is_loading[::-1].index(True) if any(is_loading) else 0
    return next(
        (frame for frame in frames[since:] if not _is_importing(frame.tb_frame.f_code.co_filename)),
        None,
    )


def find_place(traceback: types.TracebackType | None) -> str | None:
    """Return the file and the line where the code of users called the framework, if it did."""
    frame = skip_own_frames(traceback)
    place = None
    while frame is not None and not _is_of_framework(frame.tb_frame):
        place = f'{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}'
        frame = frame.tb_next
    return place


def _is_of_framework(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get('__name__', '')).partition('.')[0] == 'kopf'


def _is_importing(filename: str) -> bool:
    return filename == importlib.__file__ or filename.startswith('<frozen importlib')


def _put_first(directory: str) -> None:
    _finder.directories.add(directory)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    if directory in sys.path:
        sys.path.remove(directory)
    sys.path.insert(0, directory)
