"""
Calls: one handler called with made-up arguments, to test its function alone.

The arguments have the same names and types as those that the framework passes, even if the test
gives plain values. Arguments not given by the test are made up. Nothing else is done: no retries,
no patches, no cluster.
"""

import datetime
import functools
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar, cast, overload

from kopf._cogs.configs import connecting, diffbase
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import (
    bodies,
    dicts,
    diffs,
    ids,
    memos,
    objects,
    patches,
    references,
    reviews,
)
from kopf._core.actions import execution, invocation, loggers, signatures
from kopf._core.engines.events import posting
from kopf._core.engines.indexing import indices
from kopf._core.intents import arguments, causes, handlers, reasons, registries, stoppers

logger = logging.getLogger('kopf.testing')

T = TypeVar('T')

SAMPLE = {
    'apiVersion': 'example.com/v1',
    'kind': 'Example',
    'metadata': {
        'name': 'example',
        'namespace': 'default',
        'uid': '00000000-0000-0000-0000-000000000000',
    },
}
METADATA = ('name', 'namespace', 'uid', 'labels', 'annotations')


@overload
def call(
    fn: Callable[..., Coroutine[Any, Any, T]],
    /,
    *,
    registry: registries.OperatorRegistry | None = ...,
    **given: Any,
) -> Coroutine[Any, Any, T]: ...


@overload
def call(
    fn: Callable[..., T], /, *, registry: registries.OperatorRegistry | None = ..., **given: Any
) -> T: ...


def call(
    fn: Callable[..., Any], /, *, registry: registries.OperatorRegistry | None = None, **given: Any
) -> Any:
    """
    Call the function of a handler with these arguments; return its result.

    All other arguments are made up. The object is given as ``body``, or is built from ``spec``,
    ``status``, ``labels``, ``name``, etc., which can be plain dicts. To see what the function
    patches, pass ``patch=kopf.Patch()``. ``indices=`` is a dict of indices by name, each a dict of
    lists.

    If the function is declared as a handler, in this registry or in the default one, it gets only
    the arguments of such handlers. Raises `TypeError` for arguments that its handlers never get.
    For a coroutine function, await the result.
    """
    declared = [
        handler
        for handler in (registry or registries.get_default_registry())._iter_handlers()
        if handler.fn == fn
    ]
    cause, kwargs = _build(fn, declared, given)
    body = getattr(cause, 'body', None)
    poster = _Notebook(given.get('settings') or settings_.OperatorSettings())

    async def call_async() -> Any:
        with execution.handling(body), posting.attached(poster):
            return await fn(**kwargs)

    if invocation.is_async(fn):
        return call_async()

    with execution.handling(body), posting.attached(poster):
        return fn(**kwargs)


def _build(
    fn: Callable[..., Any], declared: list[execution.Handler], given: dict[str, Any]
) -> tuple[causes.Cause, Mapping[str, Any]]:
    """Build the arguments for the first kind of handlers that accepts all the given ones."""
    undeclared = handlers.ResourceHandler(fn=fn, id=ids.HandlerId('undeclared'))
    candidates = [
        (kind, handler)
        for handler in declared
        for kind in arguments.KINDS
        if isinstance(handler, kind)
    ]
    unknown: list[set[str]] = []

    for kind, handler in candidates or [(kind, undeclared) for kind in arguments.KINDS]:
        names = {*arguments.OF_ATTEMPTS, *arguments.KINDS[kind].names, *given.get('indices', ())}
        unknown.append(given.keys() - names - {'indices'})
        if not unknown[-1]:
            cause = _Maker(fn, handler, given).make(kind)
            return cause, _choose_kwargs(fn, _begin(handler, given), cause, given)

    fewest = min(map(sorted, unknown), key=len)
    raise TypeError(
        f'Such handlers get no arguments named {", ".join(fewest)}.'
        f'{signatures.suggest(fewest, _list_names())} '
        f"Indices are given as indices={{'name': {{'key': ['value']}}}}."
    )


def _choose_kwargs(
    fn: Callable[..., Any],
    attempt: execution.Attempt,
    cause: causes.Cause,
    given: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Choose the arguments that the function accepts."""
    env = execution.Environment(settings=settings_.OperatorSettings(), now=_read_clock)
    own = {name: given[name] for name in arguments.OF_ATTEMPTS if name in given}
    kwargs = attempt.handler.convert({**execution.build_kwargs(attempt, cause, env), **own}, cause)
    signature = signatures.read_signature(fn)
    return kwargs if signature is None else signature.choose(kwargs)


def _list_names() -> set[str]:
    """List the names of arguments of all kinds of handlers."""
    return {*arguments.OF_ATTEMPTS}.union(*(kind.names for kind in arguments.KINDS.values()))


def _begin(handler: execution.Handler, given: Mapping[str, Any]) -> execution.Attempt:
    now = _read_clock()
    started = given.get('started', now - given.get('runtime', datetime.timedelta(0)))
    return execution.Attempt(handler, started=started, began=now, retry=given.get('retry', 0))


def _read_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class _Maker:
    """Makes a cause of any kind out of the given arguments."""

    def __init__(
        self, fn: Callable[..., Any], handler: execution.Handler, given: Mapping[str, Any]
    ) -> None:
        self.fn = fn
        self.handler = handler
        self.given = given

    def make(self, kind: type[execution.Handler]) -> causes.Cause:
        makers: dict[type[execution.Handler], Callable[[], causes.Cause]] = {
            handlers.ChangingHandler: self.make_changing,
            handlers.WatchingHandler: self.make_watching,
            handlers.SpawningHandler: self.make_spawning,
            handlers.WebhookHandler: self.make_webhook,
            handlers.ActivityHandler: self.make_activity,
            handlers.IndexingHandler: self.make_indexing,
        }
        return makers[kind]()

    def make_changing(self) -> causes.Cause:
        declared: reasons.Reason | None = getattr(self.handler, 'reason', None)
        is_resuming = declared is None and getattr(self.handler, 'initial', False)
        guessed = (
            reasons.Reason.RESUME
            if is_resuming
            else reasons.Reason.CREATE
            if self.given.get('old') is None
            else reasons.Reason.UPDATE
        )
        reason = reasons.Reason(self.given.get('reason', declared or guessed))

        return causes.ChangingCause(
            reason=reason,
            **self._compare(diffbase.AnnotationsDiffBaseStorage().build(body=self.body)),
            **self._describe(),
        )

    def make_watching(self) -> causes.Cause:
        type: bodies.RawEventType = self.given.get('type', 'ADDED')
        made = bodies.RawEvent(type=type, object=cast(bodies.RawBody, dict(self.body)))
        return causes.WatchingCause(event=self.given.get('event', made), **self._describe())

    def make_spawning(self) -> causes.Cause:
        stopped = self.given.get('stopped', False)
        stopper = stoppers.DaemonStopper()
        if isinstance(stopped, stoppers.DaemonStopped):
            return causes.SpawningCause(stopped=stopped, **self._describe())

        if stopped:
            stopper.set(stoppers.DaemonStoppingReason.DAEMON_SIGNALLED)
        is_async = invocation.is_async(self.fn)
        flag = (
            stoppers.AsyncDaemonStopped(stopper)
            if is_async
            else stoppers.SyncDaemonStopped(stopper)
        )
        return causes.SpawningCause(stopped=flag, **self._describe())

    def make_webhook(self) -> causes.Cause:
        made: dict[str, Any] = {
            'dryrun': False,
            'operation': 'CREATE' if self.given.get('old') is None else 'UPDATE',
            'warnings': [],
            'userinfo': reviews.UserInfo(username='tester', uid='', groups=[]),
            'headers': {},
            'sslpeer': {},
            'subresource': None,
        }
        chosen = {name: self.given.get(name, value) for name, value in made.items()}
        return causes.WebhookCause(**chosen, **self._compare(dict(self.body)), **self._describe())

    def make_indexing(self) -> causes.Cause:
        return causes.IndexingCause(**self._describe())

    def make_activity(self) -> causes.Cause:
        declared = getattr(self.handler, 'activity', causes.Activity.STARTUP)
        return causes.ActivityCause(
            activity=causes.Activity(self.given.get('activity', declared)),
            indices=self._make_indices(),
            logger=self.given.get('logger', logger),
            memo=self.given.get('memo', memos.Memo()),
            settings=self.given.get('settings', settings_.OperatorSettings()),
        )

    @functools.cached_property
    def body(self) -> objects.Body:
        """
        The object: given, taken from the given event, or made up, with its given parts replaced.
        """
        event: Mapping[str, Any] = self.given.get('event') or {}
        base: dict[str, Any] = dicts.plain(self.given.get('body', event.get('object', SAMPLE)))
        for name in ('spec', 'status'):
            if name in self.given:
                base[name] = dicts.plain(self.given[name])

        if 'meta' in self.given:
            base['metadata'] = dicts.plain(self.given['meta'])
        for name in METADATA:
            if name in self.given:
                dicts.ensure(base, ('metadata', name), dicts.plain(self.given[name]))

        return objects.Body(base)

    def _describe(self) -> dict[str, Any]:
        """Build the arguments that all handlers of objects have in common."""
        patch = self.given.get('patch')
        if patch is not None and not isinstance(patch, patches.Patch):
            raise TypeError(f'The patch must be kopf.Patch, not {type(patch).__name__}.')
        return {
            'logger': self.given.get('logger')
            or loggers.ObjectLogger(body=self.body, settings=settings_.OperatorSettings()),
            'memo': self.given.get('memo', memos.Memo()),
            'indices': self._make_indices(),
            'resource': self.given.get('resource') or _guess_resource(self.body),
            'body': self.body,
            'patch': patch if patch is not None else patches.Patch(body=self.body),
        }

    def _compare(self, essence: Mapping[str, Any]) -> dict[str, Any]:
        """Build the old and new states and their diff: of the object, or of the handler's field."""
        field: dicts.FieldPath = getattr(self.handler, 'field', None) or ()
        old = self.given.get('old')
        new = self.given.get('new', dicts.resolve(essence, field))

        return {
            'old': old,
            'new': new,
            'diff': diffs.Diff(self.given.get('diff', diffs.diff(old, new))),
        }

    def _make_indices(self) -> dict[str, indices.Index[Any, Any]]:
        return {
            name: _make_index(content) for name, content in self.given.get('indices', {}).items()
        }


def _make_index(content: Mapping[Any, Any]) -> indices.Index[Any, Any]:
    if isinstance(content, indices.Index):
        return content
    index = indices.LiveIndex()
    for source, (key, value) in enumerate(_iter_values(content)):
        index.replace(source, {key: value})
    return index


def _iter_values(content: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key, values in content.items():
        for value in values if isinstance(values, list | tuple) else [values]:
            yield key, value


def _guess_resource(body: objects.Body) -> references.Resource:
    group, _, version = str(body.get('apiVersion', 'v1')).rpartition('/')
    kind = str(body.get('kind', 'Example'))
    return references.Resource(
        group,
        version,
        f'{kind.lower()}s',
        kind=kind,
        singular=kind.lower(),
        namespaced=body.metadata.namespace is not None,
    )


class _Notebook:
    """Logs the k8s-events instead of posting them."""

    def __init__(self, settings: settings_.OperatorSettings) -> None:
        self.settings = settings

    def put(
        self,
        ref: Mapping[str, Any],
        *,
        type: str,
        reason: str,
        message: str,
        backoffs: connecting.Backoffs,
        is_optional: bool = False,
    ) -> None:
        logger.info('K8s-event of %s: %s, %s: %s', ref.get('name'), type, reason, message)
