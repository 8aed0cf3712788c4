"""
The pictures of the architecture: the layers of the package, and the path of one change.

They consist of boxes, arrows and texts. The colours are those of the page if it defines them, so
that the pictures fit both the light and the dark mode.

    python docs/tools/pictures.py    # writes docs/pictures/*.svg; the tests check them
"""

import dataclasses
import html
import pathlib
from collections.abc import Iterable, Iterator, Sequence

PICTURES = pathlib.Path(__file__).parent.parent / 'pictures'

STYLE = (
    'text { font-family: system-ui, sans-serif; font-size: 15px; fill: var(--color-foreground-primary, #1a1a1a); } '
    '.name { font-weight: 600; } '
    '.note { font-size: 13px; fill: var(--color-foreground-secondary, #4a4a4a); } '
    '.paper { fill: var(--color-background-primary, #ffffff); } '
    '.box { fill: var(--color-background-secondary, #f4f5f7); stroke: var(--color-foreground-border, #8a8f98); } '
    '.deep { fill: var(--color-background-hover, #e6e9ee); stroke: var(--color-foreground-border, #8a8f98); } '
    '.line { stroke: var(--color-foreground-muted, #5c6370); stroke-width: 1.6; fill: none; } '
    '.head { fill: var(--color-foreground-muted, #5c6370); }'
)


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle with a name in its first line, and notes under it."""

    x: int
    y: int
    width: int
    height: int
    name: str
    notes: Sequence[str] = ()
    style: str = 'box'

    def draw(self) -> Iterator[str]:
        yield (
            f'<rect class="{self.style}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" '
            f'rx="6"/>'
        )
        yield write(self.x + 12, self.y + 24, self.name, 'name')
        for number, note in enumerate(self.notes, start=1):
            yield write(self.x + 12, self.y + 24 + 20 * number, note, 'note')


@dataclasses.dataclass(frozen=True)
class Arrow:
    """A polyline through the points, with an arrowhead at its end."""

    points: Sequence[tuple[int, int]]
    note: str = ''
    at: tuple[int, int] = (0, 0)

    def draw(self) -> Iterator[str]:
        path = ' '.join(
            f'{"L" if index else "M"}{x},{y}' for index, (x, y) in enumerate(self.points)
        )
        yield f'<path class="line" d="{path}" marker-end="url(#head)"/>'
        if self.note:
            yield write(*self.at, self.note, 'note')


def write(x: int, y: int, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x}" y="{y}">{html.escape(text)}</text>'


def compose(name: str, title: str, size: tuple[int, int], parts: Iterable[Box | Arrow]) -> str:
    """
    Return the whole picture. Its texts are selectable; its title is for screen readers.

    The styles are limited to the picture, since it is embedded into a page.
    """
    width, height = size
    style = STYLE.replace('text {', f'#{name} text {{').replace('} .', f'}} #{name} .')
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" viewBox="0 0 {width} {height}" width="100%" '
        f'style="max-width: {width}px" role="img" aria-labelledby="{name}-title">',
        f'<title id="{name}-title">{html.escape(title)}</title>',
        f'<style>{style}</style>',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect class="paper" width="{width}" height="{height}"/>',
        *(line for part in parts for line in part.draw()),
        '</svg>',
    ]
    text = '\n'.join(lines) + '\n'
    return text.replace('url(#head)', f'url(#{name}-head)').replace(
        'id="head"', f'id="{name}-head"'
    )


def draw_layers() -> str:
    row = 62
    core = [
        ('reactor', 'runs the operator; streams, queues, cycles of objects'),
        ('engines', 'daemons, timers, indices, peering, k8s-events, admission, probes, metrics'),
        ('intents', 'what was declared, and why it is due now'),
        ('actions', 'how functions are called, retried, limited, remembered'),
    ]
    cogs = [
        ('clients', 'the only code that talks to the Kubernetes API'),
        ('configs', 'settings, and how the state is kept on objects'),
        ('structs', 'bodies, diffs, patches, resources, credentials'),
        ('codecs', "between raw objects and the users' classes"),
        ('aiokits', 'what asyncio lacks'),
        ('helpers', 'small answers to technical questions'),
    ]
    core_top, cogs_top = 204, 204 + 44 + 4 * row + 24
    parts: list[Box | Arrow] = [
        Box(
            10,
            10,
            760,
            66,
            'kopf, kopf.on, kopf.testing, kopf.cli',
            ['public: the names and signatures are promised'],
        ),
        Box(
            10,
            100,
            760,
            80,
            '_kits',
            [
                'what authors of operators use, and the framework does not:',
                'hierarchies, webhook servers, tools for tests, chaos, the commands',
            ],
        ),
        Box(10, core_top, 540, 44 + 4 * row, '_core: what makes an operator move'),
        *(
            Box(26, core_top + 38 + row * number, 508, row - 8, name, [note], 'deep')
            for number, (name, note) in enumerate(core)
        ),
        Box(
            562,
            core_top,
            208,
            44 + 4 * row,
            '_sandbox',
            [
                'a Kubernetes API server',
                'in this process, in folders',
                'as those of kube-apiserver:',
                'http, endpoints, openapi,',
                'controllers, registry,',
                'admission, apiextensions,',
                'auth, apply, schema,',
                'codec, storage, meta;',
                'of the rest, it imports',
                'only the helpers',
            ],
        ),
        Box(10, cogs_top, 760, 44 + len(cogs) * row, '_cogs: parts with no idea of operators'),
        *(
            Box(26, cogs_top + 38 + row * number, 728, row - 8, name, [note], 'deep')
            for number, (name, note) in enumerate(cogs)
        ),
        Arrow([(800, 20), (800, cogs_top + 44 + len(cogs) * row)], 'imports', (812, 40)),
    ]
    title = (
        'Layers of the package from the top: public modules, kits, core beside sandbox, cogs; '
        'imports go down only'
    )
    return compose('layers', title, (900, cogs_top + 44 + len(cogs) * row + 10), parts)


def draw_change() -> str:
    steps = [
        'recall the memory',
        'detect the cause',
        'select the handlers',
        'call those due now',
        'collect the outcomes',
    ]
    parts: list[Box | Arrow] = [
        Box(
            40,
            40,
            180,
            104,
            'Watcher',
            ['of one resource', 'in one namespace,', 'or in the cluster'],
        ),
        Box(276, 40, 180, 104, 'Backlog', ['of one object,', 'by its uid,', 'in order']),
        Box(512, 10, 264, 250, 'Worker: one cycle'),
        *(
            Box(528, 46 + 41 * number, 232, 36, text, (), 'deep')
            for number, text in enumerate(steps)
        ),
        Box(832, 84, 158, 104, 'One patch', ['only of what', 'differs; or none', 'at all']),
        Box(40, 200, 180, 84, 'Indices', ['filled on the stream,', 'before any worker']),
        Box(276, 200, 180, 84, 'on.event handlers', ['see every event', 'of the object']),
        Box(
            40,
            372,
            950,
            66,
            'Kubernetes API',
            ['the state of the operator is on the objects themselves'],
        ),
        Arrow([(220, 92), (272, 92)]),
        Arrow([(456, 92), (508, 92)]),
        Arrow([(776, 136), (828, 136)]),
        Arrow([(130, 144), (130, 196)]),
        Arrow([(366, 144), (366, 196)]),
        Arrow([(911, 188), (911, 368)]),
        Arrow(
            [(644, 260), (644, 320), (484, 320), (484, 120), (508, 120)],
            'a timer, if something is to be waited for',
            (500, 340),
        ),
        Arrow(
            [(40, 405), (14, 405), (14, 92), (36, 92)],
            'the echo of our own patch, and changes by others',
            (26, 352),
        ),
    ]
    title = 'The way of one change: from the watcher to the backlog of its object, one cycle of its worker, one patch'
    return compose('change', title, (1000, 448), parts)


def render() -> dict[str, str]:
    """Return the pictures by file name."""
    return {'layers.svg': draw_layers(), 'change.svg': draw_change()}


if __name__ == '__main__':
    PICTURES.mkdir(exist_ok=True)
    for name, text in render().items():
        (PICTURES / name).write_text(text)
