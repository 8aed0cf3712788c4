"""
Patterns: the regular expressions of schemas, matched by RE2, a sibling of Go's engine.

Both the schemas and the values come from clients: the time of matching is linear in their length
for any pattern. Errors in patterns are worded as by Go's compiler. The library is loaded with the
first pattern.
"""

import dataclasses
import functools
import importlib.util
import re
from typing import Any, Final

from kopf._sandbox import options

_WORDINGS: Final = {  # the errors of RE2 in Go's wording
    'missing )': 'missing closing )',
    'missing ]': 'missing closing ]',
    'trailing \\': 'trailing backslash at end of expression',
    'no argument for repetition operator': 'missing argument to repetition operator',
    'invalid repetition size': 'invalid repeat count',
    'bad repetition operator': 'invalid nested repetition operator',
    'invalid perl operator': 'invalid or unsupported Perl syntax',
    'invalid named capture group': 'invalid named capture',
}
_LOOKBEHINDS: Final = ('(?<!', '(?<=')  # parsed by Go as named groups
_ANY_BYTE: Final = re.compile(r'(?<!\\)(?:\\\\)*(\\C)')  # supported by RE2, but not by Go


class PatternError(ValueError):
    """The pattern is invalid for Go; the message is that of its compiler."""

    def __init__(self, why: str, fragment: str) -> None:
        super().__init__(f'error parsing regexp: {why}: `{fragment}`')


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A compiled pattern."""

    regex: Any

    def is_found(self, text: str) -> bool:
        """Return whether the pattern matches any part of the text."""
        return self.regex.search(_replace_surrogates(text)) is not None


def check_engine() -> None:
    """Raise `MissingLibraryError` if the library is not installed."""
    if importlib.util.find_spec('re2') is None:
        raise options.MissingLibraryError('google-re2', 'the patterns of custom resources')


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern. Raises `PatternError` if Go would refuse it."""
    import re2  # type: ignore[import-untyped]

    silently = re2.Options()
    silently.log_errors = False
    try:
        regex = re2.compile(_replace_surrogates(pattern), silently)
    except re2.error as error:
        raise _word_error(pattern, error.args[0]) from error

    if unknown := _ANY_BYTE.search(pattern):
        raise PatternError('invalid escape sequence', unknown[1])
    return Pattern(regex)


def _word_error(pattern: str, message: bytes | str) -> PatternError:
    """Convert an error of RE2 to Go's wording."""
    text = message.decode('utf-8', 'replace') if isinstance(message, bytes) else message
    why, _, fragment = text.partition(': ')
    if fragment in _LOOKBEHINDS:
        name, closing, _ = pattern[pattern.find(fragment) :].partition('>')
        return PatternError('invalid named capture', name + closing)
    return PatternError(_WORDINGS.get(why, why), fragment)


def _replace_surrogates(text: str) -> str:
    """Replace surrogates, as Go does when it reads JSON."""
    return (
        text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
        if not text.isascii()
        else text
    )
