"""
Handlers: functions with all their declared options.

They are built by the decorators, and never change after that. They are data: the filters decide
what they match, and the engines decide how they are executed.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

from kopf._cogs.helpers import lazies
from kopf._cogs.structs import dicts, diffs, references, reviews, selectors
from kopf._core.actions import execution, failures, signatures
from kopf._core.intents import (
    callbacks,
    causes,
    mappings,
    reasons,
    requeues,
    typed_arguments,
)

InitialDelay: TypeAlias = float | Callable[..., float]
"""Seconds, or a function of the object's kwargs that returns them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActivityHandler(execution.Handler):
    """A handler of the operator itself."""

    NOUN: ClassVar[str] = 'Activity'

    activity: causes.Activity

    @property
    def is_retried(self) -> bool:
        return self.activity is not causes.Activity.PROBE

    def choose_report(self, result: Any) -> str:
        if self.activity is causes.Activity.AUTHENTICATION and result is None:
            return '%s found no credentials.'
        return super().choose_report(result)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResourceHandler(execution.Handler):
    """
    A handler of objects; sub-handlers have no selectors: they are for the object of their parent.
    """

    selector: selectors.Selector | None = None
    labels: callbacks.MetaFilter | None = None
    annotations: callbacks.MetaFilter | None = None
    when: callbacks.FilterFn | None = None
    field: dicts.FieldPath | None = None
    value: callbacks.ValueFilter | None = None

    def list_callbacks(self) -> Iterator[tuple[Callable[..., Any], str, int]]:
        """
        List the functions in the options, with these options and numbers of positional arguments.
        """
        if self.when is not None:
            yield self.when, 'when=', 0
        for option in ('labels', 'annotations'):
            criteria: callbacks.MetaFilter = getattr(self, option) or {}
            for name, criterion in criteria.items():
                if callable(criterion):
                    yield criterion, f'{name!r} in {option}=', 1

        for option in ('value', 'old', 'new'):
            value: callbacks.ValueFilter = getattr(self, option, None)
            if callable(value):
                yield value, f'{option}=', 1

    @lazies.lazy
    def narrowed(self) -> Mapping[tuple[int, int], signatures.Signature]:
        """
        The signatures of the functions in the options that do not accept all arguments.

        The keys are the identities of the functions, and their numbers of positional arguments.
        """
        read = {
            (id(fn), given): signatures.read_signature(fn, given)
            for fn, _, given in self.list_callbacks()
        }
        return {key: found for key, found in read.items() if found and not found.is_open}

    def call_back(self, fn: Callable[..., Any], *args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a function of the options with the arguments that it accepts."""
        signature = self.narrowed.get((id(fn), len(args)))
        return fn(*args, **(kwargs if signature is None else signature.choose(kwargs)))

    @lazies.lazy
    def typed(self) -> tuple[typed_arguments.TypedArgument, ...]:
        """The arguments of the function that are annotated with the users' classes."""
        return typed_arguments.find(self.fn)

    def convert(self, kwargs: Mapping[str, Any], cause: causes.Cause) -> Mapping[str, Any]:
        typed = self.typed
        if not typed or not isinstance(cause, causes.ResourceCause):
            return kwargs
        is_deleted = causes.is_deletion(cause)
        subject = typed_arguments.Subject(cause.body, cause.resource, self.field, is_deleted)
        return typed_arguments.convert(typed, kwargs, subject)

    def adjust(self, cause: causes.ResourceCause) -> Mapping[str, Any]:
        """
        Build the arguments specific to this handler: with a field, only the changes of that field.

        They are copies: in-place modifications by one function do not affect the others. Only
        changes of objects are adjusted: in admission, the field is only a filter.
        """
        if not isinstance(cause, causes.ChangingCause):
            return {}

        old = cause.old
        new = cause.new
        diff = cause.diff

        if self.field is not None:
            old = dicts.resolve(old, self.field)
            new = dicts.resolve(new, self.field)
            diff = diffs.reduce(diff, self.field)

        copies = diffs.copy(old, new, diff)
        is_secret = references.is_secret(cause.resource)
        return causes.conceal_states(**copies, field=self.field) if is_secret else copies


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchingHandler(ResourceHandler):
    """A handler of raw events."""

    @property
    def is_retried(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexingHandler(ResourceHandler):
    """A handler that provides values for an index; its id is the name of the index."""

    NOUN: ClassVar[str] = 'Indexer'
    IS_ROUTINE: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangingHandler(ResourceHandler):
    """
    A handler of changes.

    Without a reason, it is for any change of its field (with ``field_needs_change``), for the
    resuming of objects (with ``initial``), or, in sub-handlers, for any reason of their parents.
    """

    reason: reasons.Reason | None = None
    # Called once after the operator's start for the objects that existed before.
    initial: bool = False
    deleted: bool = False  # called on resuming even if the objects are being deleted
    # Matching objects cannot disappear before the handler is called.
    requires_finalizer: bool = False
    # The field is compared with its old value; otherwise, only the current value matters.
    field_needs_change: bool = False
    old: callbacks.ValueFilter | None = None
    new: callbacks.ValueFilter | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpawningHandler(ResourceHandler):
    """A handler that runs beside an object while the object exists and matches."""

    requires_finalizer: bool = True
    initial_delay: InitialDelay | None = None

    def list_callbacks(self) -> Iterator[tuple[Callable[..., Any], str, int]]:
        yield from super().list_callbacks()
        if callable(self.initial_delay):
            yield self.initial_delay, 'initial_delay=', 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DaemonHandler(SpawningHandler):
    """A handler that is called once and keeps running."""

    NOUN: ClassVar[str] = 'Daemon'

    cancellation_backoff: float | None = None
    cancellation_timeout: float | None = None
    cancellation_polling: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimerHandler(SpawningHandler):
    """A handler that is called repeatedly."""

    NOUN: ClassVar[str] = 'Timer'
    IS_ROUTINE: ClassVar[bool] = True

    interval: float | None = None
    sharp: bool | None = None
    idle: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebhookHandler(ResourceHandler):
    """A handler of admission reviews."""

    type: causes.WebhookType
    # None is for all operations, but not for deletions if mutating.
    operations: frozenset[reviews.Operation] | None = None
    subresource: str | None = None  # None is for the main body only, '*' is for all
    persistent: bool | None = None
    side_effects: bool | None = None
    ignore_failures: bool | None = None

    @property
    def is_retried(self) -> bool:
        return False

    def is_denial(self, error: Exception) -> bool:
        return isinstance(error, failures.AdmissionError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReconcileHandler(ResourceHandler):
    """
    A level-triggered handler: it sees only the present, and is called whenever that may matter.

    Nothing is stored on the objects for it.
    """

    NOUN: ClassVar[str] = 'Reconciler'
    IS_ROUTINE: ClassVar[bool] = True
    LIMITS_CALLS: ClassVar[bool] = True

    resync: float | None = None  # the maximum seconds between the calls
    settle: float | None = None  # seconds of silence to wait for after a trigger
    deletion: bool = False  # whether it is also called for the deletion, which waits for it
    owns: tuple[mappings.Owns, ...] = ()  # the resources of its children
    watches: tuple[mappings.Watch, ...] = ()  # the resources it refers to, and in which way
    workers: int | None = None  # how many objects it may be called for at the same time

    @property
    def links(self) -> tuple[mappings.Owns | mappings.Watch, ...]:
        """The other objects that the handler needs besides its own."""
        return (*self.owns, *self.watches)

    def check_result(self, result: Any) -> None:
        """Refuse everything except for nothing and requeues: other results may get a meaning."""
        if result is None or isinstance(result, requeues.Requeue):
            return
        hint = 'Return None or kopf.Requeue(seconds); put the values of the object into `patch`.'
        if isinstance(result, list | tuple):
            hint = 'Returned children are not applied. ' + hint
        raise failures.PermanentError(
            f'{self} has returned a value of the type {type(result).__name__}. {hint}'
        )
