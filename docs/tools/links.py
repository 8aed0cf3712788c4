"""
The links inside the built documentation: each must lead to an existing file and anchor.

Links to other hosts are only counted: they cannot be checked without a network.

    python docs/tools/links.py docs/_build/html
"""

import html.parser
import pathlib
import sys
import urllib.parse
from collections.abc import Iterator


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {'', 'top'}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is not None and name in {'href', 'src', 'data'}:
                self.links.add(value)
            elif value is not None and name in {'id', 'name'}:
                self.anchors.add(value)


def check(root: pathlib.Path) -> tuple[list[str], int]:
    """Return all broken links inside these pages, and the number of links to other hosts."""
    pages = {path: Page(path.read_text()) for path in sorted(root.rglob('*.html'))}
    broken: list[str] = []
    outside: set[str] = set()
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                outside.add(link)
            else:
                broken.extend(
                    f'{path.relative_to(root)}: {link}: {why}'
                    for why in explain(path, parts, pages)
                )
    return broken, len(outside)


def explain(
    path: pathlib.Path, link: urllib.parse.SplitResult, pages: dict[pathlib.Path, Page]
) -> Iterator[str]:
    target = path.parent / urllib.parse.unquote(link.path) if link.path else path
    target = pathlib.Path(target).resolve()
    if not target.is_file():
        yield 'there is no such file'
    elif target in pages and urllib.parse.unquote(link.fragment) not in pages[target].anchors:
        yield 'there is no such anchor'


def main(root: str) -> int:
    broken, outside = check(pathlib.Path(root).resolve())
    sys.stdout.writelines(f'{line}\n' for line in broken)
    sys.stdout.write(
        f'{len(broken)} links are broken; {outside} lead to other hosts, and are not checked.\n'
    )
    return 1 if broken else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
