"""
Directories: where the kubeconfig of the sandbox of a command is, the same from run to run.

There is one directory per user and per current directory of the command, so that ``export KUBECONFIG=…`` in another
terminal outlives the restarts of the command. It is private: never a link, never of another user. While a command runs,
it holds the directory; the next one takes another. It is removed with all that is in it when the command ends.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Mapping

PREFIX = 'kopf-sandbox-'
PORTS = range(20000, 30000)
"""The ports to choose from: the system gives out others when any port will do."""


class Directory:
    """A directory that belongs to this process until it is removed."""

    def __init__(self, path: pathlib.Path, lock: int | None = None) -> None:
        self.path, self._lock = path, lock

    def remove(self) -> None:
        """Remove the directory. It can be called from any thread, and more than once."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):
                os.close(lock)


def choose_place(environ: Mapping[str, str], cwd: str) -> tuple[pathlib.Path, int]:
    """Choose the usual directory and port for commands in this current directory."""
    runtime = environ.get('XDG_RUNTIME_DIR', '')
    base = runtime if os.path.isdir(runtime) else tempfile.gettempdir()
    user = os.getuid() if hasattr(os, 'getuid') else 0
    digest = hashlib.sha256(f'{user}:{cwd}'.encode()).digest()
    name = f'{PREFIX}{user}-{digest[:4].hex()}'
    return pathlib.Path(base, name), PORTS[int.from_bytes(digest[4:8], 'big') % len(PORTS)]


def take_directory(path: pathlib.Path) -> Directory:
    """
    Make the directory, or take the one that was left by a killed process.

    Raises `OSError` if it is in use, or is not a private directory of this user, or cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    lock = os.open(path, os.O_RDONLY | getattr(os, 'O_DIRECTORY', 0) | getattr(os, 'O_NOFOLLOW', 0))
    try:
        _check_private(os.fstat(lock))
        _hold(lock)
        if not os.path.samestat(os.fstat(lock), os.lstat(path)):  # it was removed meanwhile
            raise OSError(f'The directory {path} is in use.')
    except BaseException:
        os.close(lock)
        raise
    return Directory(path, lock)


def make_directory() -> Directory:
    """Make a new directory, with a name that is not known in advance."""
    return Directory(pathlib.Path(tempfile.mkdtemp(prefix=PREFIX)))


def _check_private(found: os.stat_result) -> None:
    is_ours = not hasattr(os, 'getuid') or found.st_uid == os.getuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError('The directory is not private.')


def _hold(descriptor: int) -> None:
    """Hold it until the descriptor is closed, at the latest with the process; raise `OSError` if others hold it."""
    try:
        import fcntl
    except ImportError:  # there are no such locks on this system
        raise OSError('Directories cannot be held.') from None
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
