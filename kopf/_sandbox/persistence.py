"""
Persistence: the objects of a sandbox in a directory, so that they outlive its process, even a
killed one.

Every change is immediately appended to a journal. At the start and at the end, and when the journal
gets long, everything is rewritten as one snapshot, which replaces the previous one atomically. Both
are JSON lines in one format. A line that was cut by the death of the process is dropped: no client
could have seen its change. Any other damage of the files is reported with the name of the file and
the line, and the files are not changed.
"""

import contextlib
import dataclasses
import io
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from kopf._cogs.helpers import jsons
from kopf._sandbox import keyrings
from kopf._sandbox.controllers import establishing
from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

try:
    import fcntl
except ImportError:  # not available on this system
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger('kopf.sandbox')

FORMAT = 1
LONG_JOURNAL = 100_000
"""The number of lines in the journal after which a snapshot is made."""

_TYPES = ('ADDED', 'MODIFIED', 'DELETED')


class SaveError(Exception):
    """The directory cannot be used: it is damaged, not accessible, or used by another sandbox."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a file: an object as of a version, or its last state if it was deleted."""

    version: int
    type: str
    home: kinds.Home
    body: dict[str, Any]

    @property
    def place(self) -> tuple[kinds.Home, str]:
        meta = self.body['metadata']
        return self.home, memory.make_key(meta.get('namespace') or '', meta['name'])


@dataclasses.dataclass(frozen=True)
class Saved:
    """The content of the directory."""

    version: int = 0  # 0 if nothing was saved
    objects: list[tuple[kinds.Home, dict[str, Any]]] = dataclasses.field(default_factory=list)
    keyring: keyrings.Keyring = dataclasses.field(default_factory=keyrings.Keyring)


class Saver:
    """
    Keeps one directory in sync with one storage. The directory is locked from `open` to `close`.

    Until `begin`, nothing in the directory is changed.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = pathlib.Path(directory)
        self._is_made = False  # the directory was created by this saver
        self._lock: int | None = None
        self._store: memory.Storage | None = None
        self._journal: io.FileIO | None = None
        self._lines = 0

    def open(self) -> Saved:
        """Lock the directory, creating it if needed, and read its content. Raises `SaveError`."""
        try:
            with self._explain():
                self._is_made = not self._directory.exists()
                self._directory.mkdir(mode=0o700, exist_ok=True)
                self._lock = _lock(self._directory / 'lock')
                return read_saved(self._directory)
        except BaseException:
            self.close()
            raise

    def begin(self, store: memory.Storage, keyring: keyrings.Keyring) -> None:
        """Save the current state, and then each change. Raises `SaveError` if it fails."""
        self.save_keyring(keyring)
        with self._explain():
            self._rewrite(store)
        self._store = store
        store.observe(self._notice)

    def save_keyring(self, keyring: keyrings.Keyring) -> None:
        """Save the secrets, readable only by the user. Raises `SaveError` if it fails."""
        with self._explain():
            _replace(self._directory / 'credentials.json', [keyrings.dump_keyring(keyring)])

    def close(self) -> None:
        """Save everything, and unlock the directory. Raises `SaveError` if it fails."""
        try:
            if self._store is not None:
                with self._explain():
                    self._rewrite(self._store)
        finally:
            self._release()

    @contextlib.contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise SaveError(
                f'Cannot use the directory {self._directory}: {e.strerror or e}.'
            ) from e

    def _notice(self, change: memory.Change) -> None:
        if self._journal is None:
            return

        position = self._journal.tell()
        line = encode_entry(change.type, change.home, change.new)
        try:
            if self._journal.write(line) != len(line):
                raise OSError('there is no more space')
        except OSError as e:
            self._give_up(position, e)
            return

        self._lines += 1
        if self._lines >= LONG_JOURNAL and self._store is not None:
            self._shorten(self._store)

    def _shorten(self, store: memory.Storage) -> None:
        try:
            self._rewrite(store)
        except OSError as e:
            logger.error(
                'The saved objects in %s cannot be rewritten, the journal goes on: %s',
                self._directory,
                e,
            )
            self._lines = 0

    def _give_up(self, position: int, error: OSError) -> None:
        """Stop the journal at the last complete change, without the partially written line."""
        logger.error(
            'The changes are no longer saved to %s, until the sandbox ends: %s',
            self._directory,
            error,
        )
        if self._journal is not None:
            self._journal.truncate(position)
            self._journal.close()
            self._journal = None

    def _rewrite(self, store: memory.Storage) -> None:
        """
        Begin a new snapshot and a new journal. A crash in between is safe: the old journal adds
        nothing to the snapshot.
        """
        _replace(self._directory / 'snapshot.jsonl', encode_snapshot(store))
        if self._journal is not None:
            self._journal.close()
        self._journal = io.FileIO(self._directory / 'journal.jsonl', 'w', opener=_open_privately)
        self._lines = 0

    def _release(self) -> None:
        if self._journal is not None:
            self._journal.close()
        if self._is_made and self._store is None:
            shutil.rmtree(self._directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
        self._journal = self._store = self._lock = None


def read_saved(directory: pathlib.Path) -> Saved:
    """Read a directory. Raises `SaveError` if it is damaged, `OSError` if unreadable."""
    snapshot = directory / 'snapshot.jsonl'
    journal = directory / 'journal.jsonl'
    if not snapshot.exists():
        if journal.exists():
            raise SaveError(
                f'The directory {directory} is damaged: it has {journal.name}, but no '
                f'{snapshot.name}.'
            )
        return Saved()

    version, entries = _read_snapshot(snapshot)
    later = (
        [entry for entry in _read_journal(journal) if entry.version > version]
        if journal.exists()
        else []
    )
    objects = replay([*entries, *sorted(later, key=lambda entry: entry.version)])
    latest = max([version, *(entry.version for entry in later)])

    return Saved(latest, objects, _read_keyring(directory / 'credentials.json'))


def replay(entries: list[Entry]) -> list[tuple[kinds.Home, dict[str, Any]]]:
    """Return the objects that exist after all the changes."""
    objects: dict[tuple[kinds.Home, str], Entry] = {}
    for entry in entries:
        if entry.type != 'DELETED':
            objects[entry.place] = entry
            continue
        objects.pop(entry.place, None)
        if entry.home == kinds.CRDS:
            gone = establishing.get_home(entry.body['metadata']['name'])
            objects = {place: other for place, other in objects.items() if other.home != gone}

    return [(entry.home, entry.body) for entry in objects.values()]


def encode_snapshot(store: memory.Storage) -> Iterator[bytes]:
    """Yield all objects as lines, after a header line."""
    shelves = [(home, shelf.select('')) for home, shelf in store]
    count = sum(len(objects) for _, objects in shelves)
    yield jsons.dumps({'format': FORMAT, 'version': store.version, 'count': count}) + b'\n'
    for home, objects in shelves:
        yield from (encode_entry('ADDED', home, stored) for stored in objects)


def encode_entry(type: str, home: kinds.Home, stored: memory.Stored) -> bytes:
    """Encode one line, with the object as it is stored."""
    return b'{"version":%d,"type":%b,"home":%b,"object":%b}\n' % (
        stored.version,
        jsons.dumps(type),
        jsons.dumps(list(home)),
        stored.raw,
    )


def decode_entry(line: bytes) -> Entry:
    """Decode one line. Raises `ValueError` if it is damaged."""
    try:
        saved = jsons.loads(line)
        group, plural = saved['home']
        entry = Entry(saved['version'], saved['type'], kinds.Home(group, plural), saved['object'])
        int(entry.body['metadata']['resourceVersion'])
        is_sound = (
            isinstance(entry.version, int)
            and entry.type in _TYPES
            and isinstance(entry.place[1], str)
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f'unexpected structure: {e}') from e

    if not is_sound:
        raise ValueError('unexpected values')
    return entry


def _read_snapshot(path: pathlib.Path) -> tuple[int, list[Entry]]:
    header, *lines = path.read_bytes().split(b'\n')
    try:
        saved = jsons.loads(header)
        version = int(saved['version'])
        count = int(saved['count'])
        is_known = saved['format'] == FORMAT
    except (ValueError, KeyError, TypeError) as e:
        raise _damaged(path, 1, e) from e

    if not is_known:
        raise SaveError(f'{path} is of another version of the sandbox.')
    if len(lines) != count + 1 or lines[-1]:
        raise _damaged(path, len(lines) + 1, f'there must be {count + 1} lines')
    return version, [_decode(path, number, line) for number, line in enumerate(lines[:-1], start=2)]


def _read_journal(path: pathlib.Path) -> list[Entry]:
    *lines, rest = path.read_bytes().split(b'\n')
    entries = [_decode(path, number, line) for number, line in enumerate(lines, start=1)]
    if rest:
        logger.warning('The last change in %s was not fully written, and is dropped.', path)
    return entries


def _read_keyring(path: pathlib.Path) -> keyrings.Keyring:
    if not path.exists():
        return keyrings.Keyring()
    try:
        return keyrings.load_keyring(path.read_bytes())
    except ValueError as e:
        raise SaveError(f'{path} is damaged: {e}.') from e


def _decode(path: pathlib.Path, number: int, line: bytes) -> Entry:
    try:
        return decode_entry(line)
    except ValueError as e:
        raise _damaged(path, number, e) from e


def _damaged(path: pathlib.Path, number: int, why: object) -> SaveError:
    return SaveError(f'{path} is damaged in the line {number}: {" ".join(str(why).split())}.')


def _lock(path: pathlib.Path) -> int:
    """Lock a file until its descriptor is closed, or the process ends in any way."""
    if fcntl is None:
        raise SaveError('The objects cannot be saved on this system: it has no locks for files.')

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        os.close(descriptor)
        raise SaveError(f'The directory {path.parent} is used by another sandbox.') from e
    except BaseException:
        os.close(descriptor)
        raise

    return descriptor


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _replace(path: pathlib.Path, lines: Iterator[bytes] | list[bytes]) -> None:
    """Write a private file in place of the old one, atomically."""
    # With mode 0600.
    descriptor, temporary = tempfile.mkstemp(prefix=f'.{path.name}.', dir=path.parent)
    try:
        with os.fdopen(descriptor, 'wb') as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
