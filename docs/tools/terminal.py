"""
The picture of two terminals in the README: run the operator of the README, and draw its output.

    python docs/tools/terminal.py --kubectl PATH    # writes docs/pictures/terminal.svg

The lines appear one by one. Where animations are not supported, or the reader prefers reduced
motion, all lines are shown.
"""

import argparse
import dataclasses
import html
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / 'README.md'
PICTURE = ROOT / 'docs' / 'pictures' / 'terminal.svg'

COLUMNS = 118
LETTER, ROW, MARGIN, BAR = 7.2, 17, 18, 30  # pixels
TYPING, PRINTING = 1.2, 0.15  # seconds until the next line appears

STYLE = (
    'text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; '
    'fill: #d6deeb; white-space: pre; } '
    '.typed { fill: #ffffff; font-weight: 600; } .dim { fill: #7f8ea3; } .level { fill: #7fd88f; } '
    '.line { animation: hidden linear; } @keyframes hidden { from, to { opacity: 0; } } '
    '@media (prefers-reduced-motion: reduce) { .line { animation: none; } }'
)
TITLE = 'An operator runs on the sandbox, greets an object created by kubectl, and is stopped'
LOG = re.compile(r'(?P<dim>\[[\d: ,-]+\] \S+ +)(?P<level>\[\w+ *\])(?P<text>.*)')


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a terminal, typed or printed."""

    text: str
    is_typed: bool = False


@dataclasses.dataclass(frozen=True)
class Recording:
    """The lines of two terminals; the second one is used after ``switched`` lines of the first."""

    operator: Sequence[Line]
    kubectl: Sequence[Line]
    switched: int


def read_commands(readme: str) -> tuple[str, str, str]:
    """Return the operator of the README, and the commands to run it and to create an object."""
    code = re.search(r'```python\n(# handlers\.py\n.*?)```', readme, re.DOTALL)
    run = re.search(r'^(kopf run --sandbox .*)$', readme, re.MULTILINE)
    create = re.search(r'^(kubectl create .*)$', readme, re.MULTILINE)
    if code is None or run is None or create is None:
        raise SystemExit(f'Cannot find the operator and its commands in {README}.')
    return code[1], run[1], create[1]


def record(kubectl: str, directory: pathlib.Path) -> Recording:
    """Run the commands of the README in this directory, and press Ctrl-C at the end."""
    code, run, create = read_commands(README.read_text())
    (directory / 'handlers.py').write_text(code)
    process = subprocess.Popen(
        [sys.executable, '-m', *run.split()],
        cwd=directory,
        env=os.environ | {'NO_COLOR': '1'},
        text=True,
        bufsize=1,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        started = list(read_until(process, 'peering'))
        kubeconfig = re.search(r'KUBECONFIG=(\S+)', '\n'.join(started))[1]
        env = os.environ | {'KUBECONFIG': kubeconfig}
        created = subprocess.run(
            [kubectl, *create.split()[1:]], env=env, text=True, check=True, capture_output=True
        )
        handled = list(read_until(process, 'Hello'))
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise RuntimeError(f'The operator failed: {rest}')

    printed = [Line(text) for text in (*started, *handled)]
    stopping = [Line('^C', is_typed=True), *(Line(text) for text in rest.splitlines())]
    typed = [
        Line(f'$ export KUBECONFIG={kubeconfig}', is_typed=True),
        Line(f'$ {create}', is_typed=True),
    ]
    return Recording(
        operator=[Line(f'$ {run}', is_typed=True), *printed, *stopping],
        kubectl=[*typed, *(Line(text) for text in created.stdout.splitlines())],
        switched=1 + len(started),
    )


def read_until(process: subprocess.Popen[str], text: str) -> Iterator[str]:
    """Yield the lines printed by the process, up to the one with this text."""
    for line in process.stdout or ():
        yield line.rstrip('\n')
        if text in line:
            return
    raise RuntimeError(f'The operator exited before it printed {text!r}.')


def draw(recording: Recording) -> str:
    """Draw both terminals, one below the other; their lines appear at different moments."""
    before = recording.operator[: recording.switched]
    after = recording.operator[recording.switched :]
    moments = list(schedule([*before, *recording.kubectl, *after]))
    used = moments[len(before) : len(before) + len(recording.kubectl)]
    main = [
        *zip(before, moments, strict=False),
        *zip(after, moments[len(before) + len(used) :], strict=True),
    ]

    upper = list(wrap(main))
    lower = list(wrap(list(zip(recording.kubectl, used, strict=True))))
    width = round(COLUMNS * LETTER + 2 * MARGIN)
    top = MARGIN + BAR + ROW * len(upper) + MARGIN
    height = top + BAR + ROW * len(lower) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="title">',
        f'<title id="title">{TITLE}</title>',
        f'<style>{STYLE}</style>',
        *draw_terminal('The operator', upper, 0, width, top - 6),
        *draw_terminal('Another terminal', lower, top, width, height - top),
        '</svg>',
    ]
    return '\n'.join(parts) + '\n'


def schedule(lines: Sequence[Line]) -> Iterator[float]:
    """Yield the moments when the lines appear, in seconds."""
    moment = 0.0
    for line in lines:
        moment += TYPING if line.is_typed else PRINTING
        yield round(moment, 2)


def wrap(lines: Sequence[tuple[Line, float]]) -> Iterator[tuple[str, str, float]]:
    """Yield the rows of a terminal: long lines take several rows."""
    for line, moment in lines:
        style = 'line typed' if line.is_typed else 'line'
        rows = textwrap.wrap(
            line.text,
            COLUMNS,
            subsequent_indent='    ',
            replace_whitespace=False,
            break_on_hyphens=False,
        )
        for row in rows or ['']:
            yield row, style, moment


def draw_terminal(
    title: str,
    rows: Sequence[tuple[str, str, float]],
    top: int,
    width: int,
    height: int,
) -> Iterator[str]:
    """Draw one terminal: its window, its title, and its rows."""
    yield (
        f'<rect x="1" y="{top + 1}" width="{width - 2}" height="{height - 2}" rx="8" '
        f'fill="#10151f" stroke="#3a4556"/>'
    )
    yield f'<text class="dim" x="{MARGIN}" y="{top + 22}">{html.escape(title)}</text>'
    for number, (text, style, moment) in enumerate(rows):
        y = top + BAR + MARGIN + ROW * number
        yield (
            f'<text class="{style}" x="{MARGIN}" y="{y}" xml:space="preserve" '
            f'style="animation-duration: {moment}s">{colour(text)}</text>'
        )


def colour(row: str) -> str:
    """Return the row as SVG, with separate colours for times, loggers and levels of log lines."""
    match = LOG.fullmatch(row)
    if match is None:
        return html.escape(row)
    dim, level, text = map(html.escape, match.groups())
    return f'<tspan class="dim">{dim}</tspan><tspan class="level">{level}</tspan>{text}'


def normalize(text: str) -> str:
    """Leave only the text that is the same in each run: no times, ports, versions, paths, wraps."""
    text = re.sub(r'\s*\n {4}(?=\S)', ' ', text)
    text = re.sub(r'^.*Waiting for \d+ .*\n', '', text, flags=re.MULTILINE)
    text = re.sub(r'^\[[\d: ,-]+\]', '[time]', text, flags=re.MULTILINE)
    text = re.sub(r'127\.0\.0\.1:\d+', '127.0.0.1:port', text)
    text = re.sub(r'kopf \d+\.\d+[\w.+]*', 'kopf version', text)
    return re.sub(r'KUBECONFIG=\S+', 'KUBECONFIG=path', text)


def read_rows(picture: str) -> str:
    """Return the texts of the picture, one per row."""
    rows = re.findall(r'<text [^>]*>(.*?)</text>', picture)
    return '\n'.join(html.unescape(re.sub(r'<[^>]+>', '', row)) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('--kubectl', default='kubectl', help='the command to create an object with')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        PICTURE.write_text(draw(record(options.kubectl, pathlib.Path(directory))))


if __name__ == '__main__':
    main()
