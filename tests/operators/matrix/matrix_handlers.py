"""
Handlers of the matrix: the ways in which one function is declared, and how its turn comes.

In all of them, the function with the id ``fn`` or its sub-handler changes the object.
The function ``watch``, where declared, only sees the updates.
"""

import dataclasses
import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import settling
from clusters import PLURAL
from matrix_storages import plain

import kopf

FIELD = 'spec'
"""The field of the handlers for fields: it is the one that they patch."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a handler, with what it has got at that moment."""

    name: str
    reason: str | None
    uid: str
    old: Any = None
    new: Any = None
    diff: Any = None

    def describe(self) -> str:
        return f'{self.name}({self.reason}, {self.uid[:8]}): {self.old} -> {self.new}'


class Calls(settling.Calls):
    """All calls of a cell, in order."""

    def note(self, name: str, kwargs: Mapping[str, Any]) -> Call:
        reason = kwargs.get('reason')
        views = {key: plain(kwargs[key]) for key in ('old', 'new') if kwargs.get(key) is not None}
        diff = [
            [item[0], plain(list(item[1])), *plain(list(item[2:]))]
            for item in kwargs.get('diff') or ()
        ]
        call = Call(
            name, None if reason is None else str(reason.value), kwargs['uid'], diff=diff, **views
        )
        self.append(call)
        return call


Act = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""What the function does in the cell: it gets the kwargs, and returns the result."""


class Trigger(enum.Enum):
    """When the turn of the function comes."""

    CREATION = enum.auto()  # the object is created while the operator runs
    EDIT = enum.auto()  # it is edited after that
    START = enum.auto()  # the operator starts when the object exists


@dataclasses.dataclass(frozen=True)
class Handling:
    """One way to declare the function."""

    declare: Callable[[kopf.OperatorRegistry, Calls, Act], None]
    trigger: Trigger = Trigger.CREATION
    patching: str = 'fn'  # the id of the handler that changes the object
    names: tuple[str, ...] = ('fn',)  # who is called each time
    is_updating: bool = False  # is the function called for updates too?
    has_watch: bool = False  # is there another function for updates?
    is_created: bool = True  # is it called for objects that are created while the operator runs?
    is_restarted: bool = False  # is it called when the operator restarts?
    has_finalizer: bool = False


def _declare(*decorators: Callable[..., Any], has_watch: bool = False, **options: Any) -> Any:
    def declare(registry: kopf.OperatorRegistry, calls: Calls, act: Act) -> None:
        async def fn(**kwargs: Any) -> Any:
            calls.note('fn', kwargs)
            return await act(kwargs)

        for decorator in decorators:
            decorator(PLURAL, id='fn', registry=registry, **options)(fn)
        if has_watch:
            _declare_watch(registry, calls)

    return declare


def _declare_watch(registry: kopf.OperatorRegistry, calls: Calls) -> None:
    async def watch(**kwargs: Any) -> None:
        calls.note('watch', kwargs)

    kopf.on.update(PLURAL, id='watch', registry=registry)(watch)


def _declare_subhandler(registry: kopf.OperatorRegistry, calls: Calls, act: Act) -> None:
    async def fn(**kwargs: Any) -> None:
        calls.note('fn', kwargs)

        @kopf.subhandler(id='child')
        async def child(**inner: Any) -> Any:
            calls.note('fn/child', inner)
            return await act(inner)

    for decorator in (kopf.on.create, kopf.on.update):
        decorator(PLURAL, id='fn', registry=registry)(fn)


HANDLERS: Mapping[str, Handling] = {
    'create': Handling(_declare(kopf.on.create)),
    'update': Handling(_declare(kopf.on.update), Trigger.EDIT, is_updating=True, is_created=False),
    'both': Handling(_declare(kopf.on.create, kopf.on.update), is_updating=True),
    'pair': Handling(_declare(kopf.on.create, has_watch=True), has_watch=True),
    'field': Handling(
        _declare(kopf.on.field, field=FIELD), patching=f'fn/{FIELD}', is_updating=True
    ),
    'resume': Handling(
        _declare(kopf.on.resume, has_watch=True),
        Trigger.START,
        has_watch=True,
        is_created=False,
        is_restarted=True,
    ),
    'daemon': Handling(
        _declare(kopf.daemon, has_watch=True), has_watch=True, is_restarted=True, has_finalizer=True
    ),
    'timer': Handling(
        _declare(kopf.timer, has_watch=True, interval=36000),
        has_watch=True,
        is_restarted=True,
        has_finalizer=True,
    ),
    'subs': Handling(
        _declare_subhandler, patching='fn/child', names=('fn', 'fn/child'), is_updating=True
    ),
}
