"""
Arguments: the arguments of each kind of handlers, and the checks of the declared functions.

Functions take the arguments they need by name: others are not passed to them, unless they accept
``**kwargs``. Any name can be that of an index, so a name is known to be wrong only when all indices
are declared. A function is refused only if every call of it would fail with `TypeError`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._core.actions import execution, signatures
from kopf._core.intents import causes, handlers, naming, typed_arguments

OF_ATTEMPTS = ('param', 'retry', 'started', 'runtime')
OF_ALL = ('logger', 'memo')
OF_OBJECTS = (
    *OF_ALL,
    'resource',
    'body',
    'spec',
    'meta',
    'status',
    'labels',
    'annotations',
    'name',
    'namespace',
    'uid',
    'patch',
)
OF_CHANGES = ('old', 'new', 'diff')
OF_REQUESTS = (
    'operation',
    'subresource',
    'dryrun',
    'warnings',
    'userinfo',
    'headers',
    'sslpeer',
)


class Kind(NamedTuple):
    """
    The name of a kind of handlers, and the arguments of its filters, without the attempts' ones.
    """

    title: str
    names: tuple[str, ...]


KINDS: Mapping[type[execution.Handler], Kind] = {
    handlers.ChangingHandler: Kind('Handlers of changes', (*OF_OBJECTS, 'reason', *OF_CHANGES)),
    handlers.WatchingHandler: Kind('Handlers of events', (*OF_OBJECTS, 'event', 'type')),
    handlers.SpawningHandler: Kind('Daemons and timers', (*OF_OBJECTS, 'stopped')),
    handlers.WebhookHandler: Kind(
        'Handlers of admission', (*OF_OBJECTS, *OF_CHANGES, *OF_REQUESTS)
    ),
    handlers.ActivityHandler: Kind('Handlers of activities', (*OF_ALL, 'settings', 'activity')),
    handlers.IndexingHandler: Kind('Functions of indices', OF_OBJECTS),
}


class SignatureError(TypeError):
    """Some functions cannot be called with the arguments of such handlers."""


def get_kind(cls: type[execution.Handler]) -> Kind:
    """Get the kind of the handlers of this class."""
    return next(kind for base, kind in KINDS.items() if issubclass(cls, base))


def check_declaration(handler: execution.Handler) -> None:
    """
    Raise `SignatureError` if the handler's functions cannot be called, regardless of the indices.
    """
    for complaint in _find_mistakes(handler, (), is_complete=False):
        raise SignatureError(complaint)
    if isinstance(handler, handlers.ResourceHandler):
        typed_arguments.check(handler.fn, handler.field)


def check_signatures(declared: Iterable[execution.Handler]) -> None:
    """
    Raise `SignatureError` with all handlers whose functions require unknown arguments.

    All indices must be declared. If there are startup handlers, they can declare more, so only they
    are checked: check again after them.
    """
    known = list(declared)
    startup = [handler for handler in known if _is_startup(handler)]
    check_all(startup or known, indices=list_indices(known))


def check_all(checked: Iterable[execution.Handler], *, indices: Collection[str]) -> None:
    """Check these handlers with these indices, regardless of startup handlers."""
    complaints = [
        complaint for handler in checked for complaint in _find_mistakes(handler, indices)
    ]
    if complaints:
        raise SignatureError('\n'.join(dict.fromkeys(complaints)))


def list_indices(declared: Iterable[execution.Handler]) -> list[str]:
    """List the names of the indices."""
    return [handler.id for handler in declared if isinstance(handler, handlers.IndexingHandler)]


def _is_startup(handler: execution.Handler) -> bool:
    return (
        isinstance(handler, handlers.ActivityHandler)
        and handler.activity is causes.Activity.STARTUP
    )


def _find_mistakes(
    handler: execution.Handler, indices: Collection[str], *, is_complete: bool = True
) -> Iterator[str]:
    if is_complete and isinstance(handler, handlers.ResourceHandler):
        yield from _find_undefined(handler)
    kind = get_kind(type(handler))
    for fn, option, given in _list_functions(handler):
        names = kind.names if given or option == 'when=' else (*OF_ATTEMPTS, *kind.names)
        names = (*names, *_list_typed(handler), *sorted({*indices}.difference(names)))
        signature = signatures.read_signature(fn, given)
        if signature is None:
            continue
        mismatch = signatures.find_mismatch(signature, names, is_complete=is_complete)
        if mismatch is not None:
            place = naming.describe_place(fn)
            subject = f'{option} of {handler.id!r}' if option else f'{naming.build_name(fn)}()'
            hint = signatures.suggest(signature.required.difference(names), names)
            rest = f' {kind.title} get: {", ".join(names)}.' if is_complete else ''
            yield f'{place}: {subject} {mismatch}.{hint}{rest}'


def _find_undefined(handler: handlers.ResourceHandler) -> Iterator[str]:
    """Find the classes of the arguments that refer to names which are not defined in the end."""
    try:
        typed_arguments.check(handler.fn, handler.field, is_last=True)
    except NameError as error:
        place = naming.describe_place(handler.fn)
        name = naming.build_name(handler.fn)
        yield f'{place}: {name}() has an argument of an incomplete class: {error}.'


def _list_typed(handler: execution.Handler) -> list[str]:
    """List the arguments that exist only if they are annotated with the users' classes."""
    typed = typed_arguments.find(handler.fn)
    is_of_objects = isinstance(handler, handlers.ResourceHandler)
    return [item.name for item in typed if is_of_objects and item.name == typed_arguments.OBJECT]


def _list_functions(
    handler: execution.Handler,
) -> Iterator[tuple[Callable[..., Any], str, int]]:
    """List the functions of the handler, with their options and numbers of positional arguments."""
    yield handler.fn, '', 0
    if isinstance(handler, handlers.ResourceHandler):
        yield from handler.list_callbacks()
