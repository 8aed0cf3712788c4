"""
Sandbox directories: a stable place for the kubeconfig of a command's sandbox.

There is one directory per user and per working directory of the command, so that the variable
``KUBECONFIG`` in another terminal stays valid when the command is restarted. The directory is
private: never a symbolic link, never owned by another user. A running command locks its directory;
a second command in the same place uses another one. The directory and its contents are removed when
the command exits.
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
"""The ports to choose from, outside of the range from which the system assigns free ports."""


class Directory:
    """A directory that belongs to this process until it is removed."""

    def __init__(self, path: pathlib.Path, lock: int | None = None) -> None:
        self.path = path
        self._lock = lock
        self._is_removed = False

    def remove(self) -> None:
        """Remove the directory. Can be called from any thread, and more than once."""
        if self._is_removed:
            return  # the next owner may have created it again

        self._is_removed = True
        shutil.rmtree(self.path, ignore_errors=True)
        lock = self._lock
        self._lock = None

        if lock is not None:
            with contextlib.suppress(OSError):
                os.close(lock)


def choose_place(environ: Mapping[str, str], cwd: str) -> tuple[pathlib.Path, int]:
    """Choose the default directory and port for commands in this working directory."""
    runtime = environ.get('XDG_RUNTIME_DIR', '')
    base = runtime if os.path.isdir(runtime) else tempfile.gettempdir()
    user = os.getuid() if hasattr(os, 'getuid') else 0
    digest = hashlib.sha256(f'{user}:{cwd}'.encode()).digest()
    name = f'{PREFIX}{user}-{digest[:4].hex()}'
    return pathlib.Path(base, name), PORTS[int.from_bytes(digest[4:8], 'big') % len(PORTS)]


def take_directory(path: pathlib.Path) -> Directory:
    """
    Create the directory, or reuse the one left behind by a killed process.

    Raises `OSError` if the directory is in use, is not private to this user, or cannot be created.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    lock = os.open(path, os.O_RDONLY | getattr(os, 'O_DIRECTORY', 0) | getattr(os, 'O_NOFOLLOW', 0))
    try:
        _check_private(os.fstat(lock))
        _hold(lock)
        if not os.path.samestat(os.fstat(lock), os.lstat(path)):  # removed by its previous owner
            raise OSError(f'The directory {path} is in use.')
    except BaseException:
        os.close(lock)
        raise

    return Directory(path, lock)


def make_directory() -> Directory:
    """Create a new directory with an unpredictable name."""
    return Directory(pathlib.Path(tempfile.mkdtemp(prefix=PREFIX)))


def _check_private(found: os.stat_result) -> None:
    is_ours = not hasattr(os, 'getuid') or found.st_uid == os.getuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError('The directory is not private.')


def _hold(descriptor: int) -> None:
    """
    Lock the directory until the descriptor is closed or the process exits.

    Raises `OSError` if another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        raise OSError('Directories cannot be held.') from None

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
