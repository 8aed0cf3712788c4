"""
Manifests: objects written by people, in files of YAML or JSON.

YAML is parsed as kubectl does it: only the types of JSON are produced, so dates stay strings. The
expansion of aliases is limited, as a few lines of them can expand to gigabytes. Errors are reported
in one line that names the file.
"""

import json
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kopf._sandbox import options

SUFFIXES: Final = ('.yaml', '.yml', '.json')
UNKNOWN: Final = 'the manifest'
MAX_EXPANDED: Final = 3 * 1024 * 1024
"""The limit of characters in a document with its aliases expanded: as for API requests."""


_WORDS: Final = ('y', 'n', 'yes', 'no', 'on', 'off', 'true', 'false')
_SCALARS: Final = (
    (
        'tag:yaml.org,2002:bool',
        re.compile(
            f'^(?:{"|".join((*_WORDS, *map(str.title, _WORDS), *map(str.upper, _WORDS)))})$'
        ),
        'yYnNtTfFoO',
    ),
    (
        'tag:yaml.org,2002:int',
        re.compile(r'^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o[0-7_]+|0[0-7_]*|[1-9][0-9_]*)$'),
        '-+0123456789',
    ),
    (
        'tag:yaml.org,2002:float',
        re.compile(
            r'^(?:[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?'
            r'|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$'
        ),
        '-+0123456789.',
    ),
)
"""The plain scalars that are not strings: their tags, patterns, and possible first characters."""


class ManifestError(Exception):
    """A manifest cannot be read, or it is not an object."""


class Manifest(dict[str, Any]):
    """An object with the place where it was written."""

    def __init__(self, body: Mapping[str, Any], source: str) -> None:
        super().__init__(body)
        self.source = source


def get_source(body: Mapping[str, Any]) -> str:
    """Return the place where an object was written, in words for the user."""
    return body.source if isinstance(body, Manifest) else UNKNOWN


def load_manifests(text: str | bytes, *, source: str = UNKNOWN) -> list[dict[str, Any]]:
    """Parse all objects of a text with one or many documents; lists of objects are expanded."""
    return list(_flatten(parse_yaml(text, source=source), source))


def read_manifests(paths: Iterable[str | pathlib.Path]) -> list[dict[str, Any]]:
    """Read all objects from files, and from files of directories with known suffixes, sorted."""
    return [
        body
        for path in paths
        for file in _find_files(pathlib.Path(path))
        for body in load_manifests(_read_file(file), source=str(file))
    ]


def load_sources(sources: Iterable[options.Source]) -> list[dict[str, Any]]:
    """Read all objects from the sources: see `options.Source`."""
    return [body for source in sources for body in _load_source(source)]


def _load_source(source: options.Source) -> list[dict[str, Any]]:
    match source:
        case str() if '\n' in source:
            return load_manifests(source)
        case str() | os.PathLike():
            return read_manifests([pathlib.Path(source)])
        case Manifest():
            return [source]
        case type() if hasattr(source, options.MANIFEST):
            return list(
                _flatten([_simplify(getattr(source, options.MANIFEST)(), UNKNOWN)], UNKNOWN)
            )
        case Mapping():
            return list(_flatten([_simplify(source, UNKNOWN)], UNKNOWN))
        case Sequence() if not isinstance(source, bytes | bytearray):
            return list(_flatten(_simplify(source, UNKNOWN), UNKNOWN))
        case _:
            raise TypeError(
                'Manifests are paths, texts, objects or lists of objects, not '
                f'{type(source).__name__}.'
            )


def parse_yaml(text: str | bytes, *, source: str) -> list[Any]:
    """Parse all documents, of any content; skip the empty ones."""
    import yaml

    try:
        documents = list(yaml.load_all(text, Loader=_make_loader()))
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as e:
        raise ManifestError(
            f'{source} is not valid YAML or JSON: {" ".join(str(e).split())}'
        ) from e

    return [_simplify(document, source) for document in documents if document is not None]


def compose_yaml(raw: bytes) -> Any:
    """Return the root node of the first document; ``None`` if it is empty or malformed."""
    import yaml

    loader = _make_loader()(raw)
    try:
        return loader.get_node() if loader.check_node() else None
    except (yaml.YAMLError, ValueError, LookupError, RecursionError):
        return None
    finally:
        loader.dispose()


def _find_files(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    return [path]


def _read_file(file: pathlib.Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as e:
        raise ManifestError(f'Cannot read {file}: {e.strerror or e}') from e


def _flatten(documents: Iterable[Any], source: str) -> Iterator[dict[str, Any]]:
    for body in documents:
        if not isinstance(body, dict):
            raise ManifestError(
                f'{source} must contain objects with apiVersion, kind and metadata, '
                f'not {type(body).__name__}.'
            )
        if str(body.get('kind') or '').endswith('List') and isinstance(body.get('items'), list):
            yield from _flatten(body['items'], source)
            continue
        missing = [
            name
            for name in ('apiVersion', 'kind')
            if not isinstance(body.get(name), str) or not body[name]
        ]
        if missing:
            raise ManifestError(f'An object in {source} has no {" and no ".join(missing)}.')
        if not isinstance(body.get('metadata'), dict):
            raise ManifestError(f'{body["kind"]} in {source} has no metadata.')
        yield Manifest(body, source)


def _simplify(document: Any, source: str) -> Any:
    """Convert to the types of JSON, e.g. keys to strings."""
    try:
        return json.loads(json.dumps(document, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as e:
        raise ManifestError(f'{source} has a value that JSON cannot express: {e}') from e


def _make_loader() -> Any:
    import yaml

    base = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)
    # The composer of the C library limits the recursion only by the stack of the process.
    composer = yaml.composer.Composer

    def __init__(self: Any, stream: Any) -> None:
        base.__init__(self, stream)
        composer.__init__(self)
        self.limit = max(MAX_EXPANDED, 2 * len(stream))  # never reached without aliases

    def construct_document(self: Any, node: Any) -> Any:
        if _measure(node, {}) > self.limit:
            raise yaml.constructor.ConstructorError(problem='document contains excessive aliasing')
        return base.construct_document(self, node)

    bases = (base,) if issubclass(base, composer) else (composer, base)
    loader: Any = type(
        'ManifestLoader', bases, {'__init__': __init__, 'construct_document': construct_document}
    )
    _resolve_as_go(loader)

    return loader


def _resolve_as_go(loader: Any) -> None:
    """Let the plain scalars have the types that they have in the YAML of the API server."""
    inherited = ('tag:yaml.org,2002:null', 'tag:yaml.org,2002:merge')
    loader.yaml_implicit_resolvers = {
        char: kept
        for char, resolvers in loader.yaml_implicit_resolvers.items()
        if (kept := [item for item in resolvers if item[0] in inherited])
    }
    for tag, pattern, firsts in _SCALARS:
        loader.add_implicit_resolver(tag, pattern, list(firsts))
    loader.bool_values = {**loader.bool_values, 'y': True, 'n': False}
    loader.add_constructor('tag:yaml.org,2002:int', _construct_int)
    loader.add_constructor('tag:yaml.org,2002:merge', loader.construct_yaml_str)


def _construct_int(loader: Any, node: Any) -> int:
    text = node.value.replace('_', '').lower()
    digits = text.lstrip('+-')
    is_octal = digits.startswith('0') and digits.isdigit()
    return int(text, 8) if is_octal else int(text, 0)


def _measure(node: Any, known: dict[int, int]) -> int:
    """
    Return the number of characters and values in a YAML node with its aliases expanded; the maximum
    integer for loops.
    """
    if isinstance(node.value, str):
        return len(node.value) + 1

    if id(node) not in known:
        # A provisional value, seen only by the aliases inside of the node itself: by loops.
        known[id(node)] = sys.maxsize
        children = (
            child for item in node.value for child in (item if isinstance(item, tuple) else (item,))
        )
        known[id(node)] = 1 + sum(_measure(child, known) for child in children)

    return known[id(node)]
