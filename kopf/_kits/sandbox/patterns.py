"""
Patterns: the regular expressions of schemas, which are written for Go and are to be matched by Python.

Go's syntax (RE2) is mostly a part of Python's one. What is written or means otherwise is translated;
what Go does not know (lookaheads, backreferences) is refused in the words of its compiler.
"""
import dataclasses
import functools
import re
import sys
import unicodedata
from typing import Final

_GROUP_NAME: Final = re.compile(r'\w+', re.ASCII)
_REPEAT: Final = re.compile(r'\{(\d+)(,(\d*))?\}', re.ASCII)
_OCTAL: Final = re.compile(r'[1-7][0-7]{1,2}|0[0-7]{0,2}')
_HEX: Final = re.compile(r'x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\}')
_UNICODE: Final = re.compile(r'([pP])(?:\{(\^?)(\w+)\}|(\w))')
_POSIX: Final = re.compile(r'\[:(\^?)(\w+):\]')
_MAX_REPEAT: Final = 1000
_BLANKS: Final = r'\t\n\f\r '
_PERL_CLASSES: Final = {'d': '0-9', 's': _BLANKS, 'w': '0-9A-Za-z_'}
_POSIX_CLASSES: Final = {
    'alnum': '0-9A-Za-z', 'alpha': 'A-Za-z', 'ascii': r'\x00-\x7f', 'blank': r'\t ', 'cntrl': r'\x00-\x1f\x7f',
    'digit': '0-9', 'graph': '!-~', 'lower': 'a-z', 'print': ' -~', 'punct': r'!-/:-@\[-`{-~', 'space': r'\t-\r ',
    'upper': 'A-Z', 'word': '0-9A-Za-z_', 'xdigit': '0-9A-Fa-f',
}
_SCRIPTS: Final = {
    'Arabic': 'ARABIC ', 'Cyrillic': 'CYRILLIC ', 'Greek': 'GREEK ', 'Han': 'CJK ', 'Hangul': 'HANGUL ',
    'Hebrew': 'HEBREW ', 'Hiragana': 'HIRAGANA ', 'Katakana': 'KATAKANA ', 'Latin': 'LATIN ', 'Thai': 'THAI ',
}


class PatternError(ValueError):
    """The pattern is wrong for Go; the text is that of its compiler."""

    def __init__(self, why: str, fragment: str) -> None:
        super().__init__(f'error parsing regexp: {why}: `{fragment}`')


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """
    Compile a pattern of Go for Python. Raises `PatternError` if Go would refuse it.

    The rare patterns that only Python refuses after the translation match everything.
    """
    translated = _Translation(pattern).run()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError):
        return re.compile('')


@dataclasses.dataclass
class _Group:
    """A group being read: which flags were set inside of it, and whether ``$`` is the end of a line there."""
    multiline: bool
    flags: list[str] = dataclasses.field(default_factory=list)


class _Translation:
    """One reading of a pattern, from the left to the right. Used once."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.position = pattern, 0
        self.output: list[str] = []
        self.groups = [_Group(multiline=False)]
        self.repeated = -1  # where the last repetition began, if it is the last thing read
        self.repeatable = False

    def run(self) -> str:
        readers = {'\\': self._read_escape, '[': self._read_class, '(': self._read_group, ')': self._close_group,
                   '|': self._read_choice, '*': self._read_repeat, '+': self._read_repeat, '?': self._read_repeat,
                   '{': self._read_braces}
        while self.position < len(self.pattern):
            char = self.pattern[self.position]
            readers.get(char, self._read_char)()
        if len(self.groups) > 1:
            raise PatternError('missing closing )', self.pattern)
        self.output.append(')' * len(self.groups[0].flags))
        return ''.join(self.output)

    @property
    def _rest(self) -> str:
        return self.pattern[self.position:]

    def _emit(self, text: str, length: int, *, repeatable: bool = True) -> None:
        self.output.append(text)
        self.position += length
        self.repeatable, self.repeated = repeatable, -1

    def _read_char(self) -> None:
        char = self.pattern[self.position]
        if char == '$' and not self.groups[-1].multiline:
            self._emit(r'\Z', 1)
        else:
            self._emit(char if char in '^$.' else re.escape(char), 1)

    def _read_choice(self) -> None:
        flags = self.groups[-1].flags
        self._emit(')' * len(flags) + '|' + ''.join(flags), 1, repeatable=False)

    def _read_escape(self) -> None:
        rest = self._rest
        if rest.startswith(r'\Q'):
            literal, _, _ = rest[2:].partition(r'\E')
            self._emit(re.escape(literal), min(len(rest), len(literal) + 4))
        elif rest[1:2] in 'AbB' and rest[1:]:
            self._emit(rest[:2], 2)
        elif rest[1:2] == 'z':
            self._emit(r'\Z', 2)
        else:
            text, length, is_class = _read_escaped(rest)
            self._emit(f'[{text}]' if is_class else text, length)

    def _read_class(self) -> None:
        text, length = _translate_class(self._rest)
        self._emit(text, length)

    def _read_group(self) -> None:
        rest, group = self._rest, _Group(multiline=self.groups[-1].multiline)
        if rest.startswith(('(?P<', '(?<')):
            self.groups.append(group)
            self._emit('(?:', _measure_named_group(rest), repeatable=False)
        elif rest.startswith('(?'):
            self._read_flags(rest, group)
        else:
            self.groups.append(group)
            self._emit('(?:', 1, repeatable=False)

    def _read_flags(self, rest: str, group: _Group) -> None:
        end = re.match(r'\(\?[imsU]*(-[imsU]+)?', rest)
        length = end.end() if end else 2
        closing = rest[length:length + 1]
        if not closing:
            raise PatternError('missing closing )', self.pattern)
        if closing not in ':)':
            raise PatternError('invalid or unsupported Perl syntax', rest[:length + 1])
        flags = rest[:length].replace('U', '').removesuffix('-')
        on, _, off = flags.partition('-')
        multiline = 'm' in on or (group.multiline and 'm' not in off)
        if closing == ':':
            self.groups.append(dataclasses.replace(group, multiline=multiline))
            self._emit(f'{flags}:', length + 1, repeatable=False)
        else:  # from here on to the end of the surrounding group
            self.groups[-1].multiline = multiline
            self.groups[-1].flags.append(f'{flags}:')
            self._emit(f'{flags}:', length + 1, repeatable=False)

    def _close_group(self) -> None:
        if len(self.groups) == 1:
            raise PatternError('unexpected )', self.pattern)
        self._emit(')' * (len(self.groups.pop().flags) + 1), 1)

    def _read_braces(self) -> None:
        match = _REPEAT.match(self._rest)
        if match is None:
            self._emit(r'\{', 1)
            return
        low, _, high = match.groups()
        if int(low) > _MAX_REPEAT or (high and not int(low) <= int(high) <= _MAX_REPEAT):
            raise PatternError('invalid repeat count', match.group())
        self._repeat(match.group())

    def _read_repeat(self) -> None:
        self._repeat(self.pattern[self.position])

    def _repeat(self, operator: str) -> None:
        begin = self.position
        if not self.repeatable:
            raise PatternError('missing argument to repetition operator', operator)
        if self.pattern[begin + len(operator):begin + len(operator) + 1] == '?':
            operator += '?'
        if self.repeated >= 0:
            raise PatternError('invalid nested repetition operator', self.pattern[self.repeated:begin + len(operator)])
        self._emit(operator, len(operator))
        self.repeated = begin


def _measure_named_group(rest: str) -> int:
    """Tell how long the opening of a named group is; the name itself is of no use."""
    opening = '(?P<' if rest.startswith('(?P<') else '(?<'
    end = rest.find('>')
    if end < 0:
        raise PatternError('invalid named capture', rest)
    if not _GROUP_NAME.fullmatch(rest[len(opening):end]):
        raise PatternError('invalid named capture', rest[:end + 1])
    return end + 1


def _read_escaped(rest: str) -> tuple[str, int, bool]:
    """Translate an escape sequence; tell its length, and whether it is a content of a class rather than a character."""
    code = rest[1:]
    if not code:
        raise PatternError('trailing backslash at end of expression', '')
    if code[0].lower() in _PERL_CLASSES:
        content = _PERL_CLASSES[code[0].lower()]
        return (content if code[0].islower() else _complement(content)), 2, True
    if unicode := _UNICODE.match(code):
        return _translate_unicode(unicode), 1 + unicode.end(), True
    if hexadecimal := _HEX.match(code):
        return _escape_code(int(hexadecimal.group(1) or hexadecimal.group(2), 16)), 1 + hexadecimal.end(), False
    if octal := _OCTAL.match(code):
        return _escape_code(int(octal.group(), 8)), 1 + octal.end(), False
    if code[0] in 'afnrtv':
        return f'\\{code[0]}', 2, False
    if code[0].isascii() and not code[0].isalnum():
        return re.escape(code[0]), 2, False
    raise PatternError('invalid escape sequence', rest[:2])


def _translate_class(rest: str) -> tuple[str, int]:
    """Translate a bracketed class of characters; tell its length."""
    negated = rest.startswith('[^')
    position, parts = 1 + negated, ['[^' if negated else '[']
    while not rest.startswith(']', position) or len(parts) == 1:
        if position >= len(rest):
            raise PatternError('missing closing ]', rest)
        if posix := _POSIX.match(rest, position):
            parts.append(_translate_posix(posix))
            position = posix.end()
            continue
        low, length, is_class = _read_class_char(rest, position)
        position += length
        if not is_class and rest.startswith('-', position) and rest[position + 1:position + 2] not in ('', ']'):
            high, more, is_class = _read_class_char(rest, position + 1)
            begin, position = position - length, position + 1 + more
            if is_class or _decode(low) > _decode(high):
                raise PatternError('invalid character class range', rest[begin:position])
            low = f'{low}-{high}'
        parts.append(low)
    return ''.join(parts) + ']', position + 1


def _read_class_char(rest: str, position: int) -> tuple[str, int, bool]:
    if rest[position] == '\\':
        return _read_escaped(rest[position:])
    return re.escape(rest[position]), 1, False


def _decode(escaped: str) -> str:
    """Find the character behind its escaped form."""
    return next(chr(code) for code in _codes_of(escaped))


def _codes_of(escaped: str) -> list[int]:
    if len(escaped) == 1:
        return [ord(escaped)]
    if escaped[1] in 'xuU':
        return [int(escaped[2:], 16)]
    return [{'a': 7, 'f': 12, 'n': 10, 'r': 13, 't': 9, 'v': 11}.get(escaped[1], ord(escaped[1]))]


def _escape_code(code: int) -> str:
    return f'\\U{code:08x}' if code <= sys.maxunicode else r'\U0010ffff'


def _translate_posix(match: re.Match[str]) -> str:
    negated, name = match.groups()
    if name not in _POSIX_CLASSES:
        raise PatternError('invalid character class range', match.group())
    return _complement(_POSIX_CLASSES[name]) if negated else _POSIX_CLASSES[name]


def _complement(content: str) -> str:
    inside = re.compile(f'[{content}]')
    outside = ''.join(f'\\x{code:02x}' for code in range(128) if not inside.match(chr(code)))
    return f'{outside}\\x80-\\U0010ffff'


def _translate_unicode(match: re.Match[str]) -> str:
    letter, caret, long_name, short_name = match.groups()
    content = _list_unicode_class(long_name or short_name, (letter == 'P') != bool(caret))
    if not content:
        raise PatternError('invalid character class range', f'\\{match.group()}')
    return content


@functools.cache
def _list_unicode_class(name: str, negated: bool) -> str:
    """List the ranges of the characters of a general category or of a script; nothing if there is none so named."""
    prefix = _SCRIPTS.get(name)
    if prefix is not None:
        inside = [unicodedata.name(chr(code), '').startswith(prefix) for code in range(sys.maxunicode + 1)]
    else:
        inside = [unicodedata.category(chr(code)).startswith(name) for code in range(sys.maxunicode + 1)]
    if not any(inside):
        return ''
    ranges: list[str] = []
    begin = -1
    for code, found in enumerate([*inside, negated]):
        if found != negated and begin < 0:
            begin = code
        elif found == negated and begin >= 0:
            ranges.append(f'{_escape_code(begin)}-{_escape_code(code - 1)}')
            begin = -1
    return ''.join(ranges)
