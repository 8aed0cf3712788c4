"""
Links in Markdown files: where they lead, and which anchors there are.
"""

import pathlib
import re
import urllib.parse
from collections.abc import Iterator

LINK = re.compile(r'(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)')
HEADING = re.compile(r'^#{1,4} +(?P<title>.+?)\s*$', re.MULTILINE)
LABEL = re.compile(r'^\((?P<label>[\w-]+)\)=$', re.MULTILINE)
FENCED = re.compile(
    r'^(?P<indent> *)(?P<fence>`{3,})[^`\n]*\n.*?^(?P=indent)(?P=fence) *$',
    re.MULTILINE | re.DOTALL,
)
CODE = re.compile(r'`[^`\n]+`')


def find_broken(path: pathlib.Path, root: pathlib.Path) -> Iterator[str]:
    """Links of the file to what does not exist; addresses of other hosts are not looked at."""
    text = CODE.sub('', FENCED.sub('', path.read_text()))
    for match in LINK.finditer(text):
        parts = urllib.parse.urlsplit(match['target'])
        if not parts.scheme and not leads_somewhere(path, parts, root):
            yield match['target']


def leads_somewhere(path: pathlib.Path, link: urllib.parse.SplitResult, root: pathlib.Path) -> bool:
    target = (path.parent / link.path).resolve() if link.path else path
    if not target.exists() or not target.is_relative_to(root):
        return False
    return not link.fragment or link.fragment in list_anchors(target)


def list_anchors(path: pathlib.Path) -> set[str]:
    """The anchors of headings, as they are made of their texts; and those given explicitly."""
    text = FENCED.sub('', path.read_text())
    anchors: set[str] = {match['label'] for match in LABEL.finditer(text)}
    for match in HEADING.finditer(text):
        slug = re.sub(r'[^\w\- ]', '', match['title'].lower()).replace(' ', '-')
        number = sum(1 for anchor in anchors if re.fullmatch(rf'{re.escape(slug)}(-\d+)?', anchor))
        anchors.add(f'{slug}-{number}' if number and slug in anchors else slug)
    return anchors
