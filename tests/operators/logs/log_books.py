"""
Log books: all log lines of a scenario, in a form that is the same each time, and the file where
they are kept.

Lines of one logger about one object are in their order; those of different loggers are not mixed,
nor are those of different daemons and timers, as their order is up to chance. Lines that are
repeated are there once.
"""

import dataclasses
import difflib
import os
import pathlib
import re

REWRITING = 'KOPF_REWRITE_LOG_LINES'
PATH = pathlib.Path(__file__).parent / 'log_lines.txt'
HEADER = f"""\
# All log lines of the normal life of operators, by scenarios: see test_log_lines.py.
# People alert on these lines, and their tests wait for them: review each change of this file as a change of the API.
# To rewrite it: {REWRITING}=1 pytest tests/operators/logs/test_log_lines.py
"""

UNSTABLE = [
    (re.compile(r'(is in progress: ).*$'), r'\1{BODY}'),
    (re.compile(r'(patching the \w+ with: ).*$'), r'\1{PATCH}'),
    (re.compile(r'\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?'), 'TIME'),
    (re.compile(r'\b\d+:\d\d:\d\d(\.\d+)?'), 'DURATION'),
    (re.compile(r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'), 'UID'),
    (re.compile(r'127\.0\.0\.1:\d+'), '127.0.0.1:PORT'),
    (re.compile(r'kopf \d+\.\d+\.[\w+]+'), 'kopf VERSION'),
    (re.compile(r'handlers: \d+, failed: \d+'), 'handlers: N, failed: N'),
    (re.compile(r'in \d+\.\d+ seconds'), 'in N seconds'),
]


@dataclasses.dataclass(frozen=True)
class Line:
    """One log line."""

    logger: str
    level: str
    subject: str
    text: str

    @property
    def background(self):
        """The daemon or timer that the line is about, if any."""
        match = re.match(r"(Daemon|Timer) '.*?'", self.text)
        return match[0] if match else ''

    def __str__(self):
        return f'{self.level:8s}{self.logger}: {self.subject and f"[{self.subject}] "}{self.text}'


def read_records(records):
    """Take all lines of the framework, except for those of the sandbox."""
    lines = [
        build_line(record)
        for record in records
        if record.name.startswith('kopf.') and not record.name.startswith('kopf.sandbox')
    ]
    return sorted(
        dict.fromkeys(lines), key=lambda line: (line.logger, line.subject, line.background)
    )


def build_line(record):
    ref = getattr(record, 'k8s_ref', None) or {}
    text = record.getMessage()
    for pattern, replacement in UNSTABLE:
        text = pattern.sub(replacement, text)
    return Line(
        record.name,
        record.levelname,
        ref.get('name', ''),
        text + (' (traceback)' if record.exc_info else ''),
    )


def read_sections():
    """Read the file, as texts by the names of scenarios."""
    if not PATH.exists():
        return {}
    _, *sections = PATH.read_text().split('\n## ')
    return {
        name: body.strip() for name, _, body in (section.partition('\n') for section in sections)
    }


def write_section(name, text):
    sections = {**read_sections(), name: text}
    PATH.write_text(
        HEADER + ''.join(f'\n## {name}\n{sections[name]}\n' for name in sorted(sections))
    )


def check(name, records):
    """Compare the lines with those in the file, or put them there if asked."""
    text = '\n'.join(map(str, read_records(records)))
    if os.environ.get(REWRITING):
        write_section(name, text)
    expected = read_sections().get(name, '')
    difference = difflib.unified_diff(
        expected.splitlines(), text.splitlines(), 'before', 'now', lineterm='', n=0
    )
    assert text == expected, '\n'.join(
        [
            f'The log lines of {name!r} have changed. If it is on purpose, rewrite them, and review the difference:',
            f'{REWRITING}=1 pytest tests/operators/logs/test_log_lines.py; git diff tests/operators/logs/{PATH.name}',
            *difference,
        ]
    )
