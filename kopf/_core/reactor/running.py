"""
Running: operators as functions to call, as coroutines to await, or as tasks to orchestrate.

Several operators can run in one process, in the same or in different event loops, independently of
each other.
"""

import asyncio
import contextvars
import gc
import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Collection
from typing import Any, TypedDict, TypeVar, Unpack

from kopf._cogs.aiokits import flags
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import memos, references, vaults
from kopf._core.actions import lifecycles, signatures
from kopf._core.engines.probing import endpoints
from kopf._core.intents import registries
from kopf._core.reactor import inventory, observation, operating, operator_plans, stopping

logger = logging.getLogger(__name__)

LEFTOVERS_TIMEOUT = 5.0
"""Seconds for the tasks left by the operator to end by themselves before they are cancelled."""

REFUSAL_TIMEOUT = 5.0
"""Seconds for the cancelled tasks to end before they are abandoned."""


class Options(TypedDict, total=False):
    """The options of an operator, the same for all ways of running it."""

    lifecycle: lifecycles.LifecycleFn | None
    indexers: Any
    registry: registries.OperatorRegistry | None
    settings: settings_.OperatorSettings | None
    memories: inventory.Memories | None
    insights: observation.Insights | None
    identity: str | None
    standalone: bool | None
    priority: int | None
    peering_name: str | None
    leader_elect: str | None
    leader_elect_namespace: str | None
    liveness_endpoint: str | None
    clusterwide: bool
    namespaces: Collection[references.NamespacePattern]
    namespace: references.NamespacePattern | None
    stop_flag: flags.Flag | None
    ready_flag: flags.Flag | None
    vault: vaults.Vault | None
    memo: object | None
    _command: Any


FnT = TypeVar('FnT', bound=Callable[..., Any])

_DEFAULTS = {'clusterwide': False, 'namespaces': ()}


def _signed(fn: FnT) -> FnT:
    """Show all options in the signature of the function, with their defaults."""
    before = [
        parameter
        for parameter in inspect.signature(fn).parameters.values()
        if parameter.name != 'options'
    ]
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=kind
        )
        for name, kind in Options.__annotations__.items()
    ]
    fn.__signature__ = inspect.Signature([*before, *options], return_annotation=None)  # type: ignore[attr-defined]

    return fn


@_signed
def run(*, loop: asyncio.AbstractEventLoop | None = None, **options: Unpack[Options]) -> None:
    """
    Run an operator until it is stopped, in the given event loop or in the loop of this thread.

    Raises the same errors as `operator`. The loop is closed only if it was created here.
    """
    try:
        if loop is not None:
            loop.run_until_complete(operator(**options))
        elif (current := _get_thread_loop()) is not None:
            current.run_until_complete(operator(**options))
        else:
            asyncio.run(operator(**options))
    except asyncio.CancelledError:
        pass


@_signed
async def operator(**options: Unpack[Options]) -> None:
    """
    Run an operator until stopped by its stop-flag, a signal in the main thread, or cancellation.

    In all cases, the operator stops gracefully and calls its cleanup handlers. Raises the error
    that stopped it, if any.
    """
    existing = asyncio.all_tasks()
    tasks = await spawn_tasks(**options)
    await run_tasks(tasks, ignored=existing)


@_signed
async def spawn_tasks(**options: Unpack[Options]) -> Collection[asyncio.Task[None]]:
    """
    Start an operator and return its tasks: as soon as any of them ends, the operator ends.

    To stop it, cancel the tasks and await them. Raises `TypeError` if the options contradict each
    other, and `EndpointError` if the endpoint of the probes is invalid.
    """
    _check_options(options)
    liveness = options.get('liveness_endpoint')
    plan = operator_plans.Plan(
        registry=_choose(options.get('registry'), registries.get_default_registry),
        settings=_adjust_settings(options),
        lifecycle=signatures.narrow(
            _choose(options.get('lifecycle'), lifecycles.get_default_lifecycle)
        ),
        memo=_choose(options.get('memo'), memos.Memo),
        vault=_choose(options.get('vault'), vaults.Vault),
        memories=_choose(options.get('memories'), inventory.Memories),
        insights=_choose(options.get('insights'), observation.Insights),
        clusterwide=_is_clusterwide(options),
        patterns=_list_patterns(options),
        stop_flag=options.get('stop_flag'),
        ready_flag=options.get('ready_flag'),
        identity=options.get('identity'),
        endpoint=endpoints.parse_endpoint(liveness) if liveness else None,
    )
    context = contextvars.copy_context()
    context.run(_current.set, plan)

    return [asyncio.create_task(_run_plan(plan), name='operator', context=context)]


async def run_tasks(
    root_tasks: Collection[asyncio.Task[None]],
    *,
    ignored: Collection[asyncio.Task[Any]] = frozenset(),
) -> None:
    """
    Wait for the tasks of an operator; once any of them ends, stop all others and leftovers.

    The leftovers are the tasks started from its handlers at any depth, unless ignored: they get 5
    seconds to end, then are cancelled and get 5 more. Cancellation has the same effect. Raises the
    first error of the root tasks.
    """
    roots = set(root_tasks)
    plans = [plan for task in roots if (plan := _get_plan(task)) is not None]
    try:
        await asyncio.wait(roots, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _stop_roots(roots)
        others = asyncio.all_tasks() - roots - set(ignored) - {asyncio.current_task()}
        await _stop_leftovers({task for task in others if _get_plan(task) in plans})

    for task in root_tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


OptionT = TypeVar('OptionT')


def _choose(option: OptionT | None, make: Callable[[], OptionT]) -> OptionT:
    """Return the given value, even if it is empty, or else the default."""
    return option if option is not None else make()


_current: contextvars.ContextVar[operator_plans.Plan | None] = contextvars.ContextVar(
    'kopf-operator', default=None
)
"""The operator that has started the current task, directly or through other tasks."""


def get_current_vault() -> vaults.Vault | None:
    """Get the credentials of the operator that has started the current task, if any."""
    plan = _current.get()
    return plan.vault if plan is not None else None


def _get_plan(task: asyncio.Task[Any]) -> operator_plans.Plan | None:
    """Get the operator to which the task belongs: tasks inherit the context of their creators."""
    if sys.version_info >= (3, 12):
        return task.get_context().get(_current)
    contexts = [item for item in gc.get_referents(task) if isinstance(item, contextvars.Context)]
    return next((context.get(_current) for context in contexts), None)


async def _run_plan(plan: operator_plans.Plan) -> None:
    async with stopping.Stopper(plan.settings, plan.stop_flag) as stopper:
        await operating.Operator(plan).run(stopper)


async def _stop_roots(roots: set[asyncio.Task[None]]) -> None:
    """
    Stop the tasks gracefully; if cancelled in the meantime, cancel them again and keep waiting.
    """
    cancellation: asyncio.CancelledError | None = None
    while True:
        for task in roots:
            task.cancel()
        try:
            await asyncio.wait(roots)
            break
        except asyncio.CancelledError as error:
            cancellation = error

    if cancellation is not None:
        raise cancellation


async def _stop_leftovers(tasks: set[asyncio.Task[Any]]) -> None:
    if not tasks:
        return

    _, pending = await asyncio.wait(tasks, timeout=LEFTOVERS_TIMEOUT)
    if pending:
        names = ', '.join(sorted(task.get_name() for task in pending))
        logger.warning(
            '%d tasks are left after the operator, and are cancelled: %s', len(pending), names
        )
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=REFUSAL_TIMEOUT)

    if pending:
        names = ', '.join(sorted(task.get_name() for task in pending))
        logger.warning('%d tasks refuse to end, and are left as they are: %s', len(pending), names)


def _adjust_settings(options: Options) -> settings_.OperatorSettings:
    """Take the given or default settings, and apply the options that are settings."""
    settings = _choose(options.get('settings'), settings_.OperatorSettings)
    peering = settings.peering
    peering.clusterwide = _is_clusterwide(options)

    for name, value in [
        ('standalone', options.get('standalone')),
        ('priority', options.get('priority')),
        ('name', options.get('peering_name')),
    ]:
        if value is not None:
            setattr(peering, name, value)

    leadership = settings.leadership
    leadership.name = _prefer(options.get('leader_elect'), leadership.name)
    leadership.namespace = _prefer(options.get('leader_elect_namespace'), leadership.namespace)
    peering.mandatory = peering.mandatory or options.get('peering_name') is not None

    return settings


def _prefer(option: OptionT | None, present: OptionT | None) -> OptionT | None:
    return present if option is None else option


def _list_patterns(options: Options) -> Collection[references.NamespacePattern]:
    namespaces = options.get('namespaces') or ()
    namespace = options.get('namespace')
    if isinstance(namespaces, str):
        raise TypeError(
            f'namespaces= is a collection of names or patterns; got {namespaces!r}. Put it in a '
            'list.'
        )
    if namespaces and namespace is not None:
        raise TypeError(
            'Either namespaces= or namespace= can be given, not both; the latter is deprecated.'
        )

    patterns = tuple(namespaces) if namespace is None else (namespace,)
    if patterns and options.get('clusterwide'):
        raise TypeError('Either clusterwide=True or namespaces= can be given, not both.')
    return patterns


def _is_clusterwide(options: Options) -> bool:
    return bool(options.get('clusterwide')) or not _list_patterns(options)


def _check_options(options: Options) -> None:
    """Raise an error for invalid options; warn about deprecated or ambiguous ones."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f'Operators have no such options: {", ".join(sorted(unknown))}.')

    flags.check_flag(options.get('stop_flag'))
    flags.check_flag(options.get('ready_flag'))
    if options.get('namespace') is not None:
        warnings.warn(
            'namespace= is deprecated: use namespaces=[...].', DeprecationWarning, stacklevel=3
        )

    if not options.get('clusterwide') and not _list_patterns(options):
        warnings.warn(
            'Neither clusterwide=True nor namespaces= is given: the whole cluster is served. '
            'It can become an error in the future.',
            FutureWarning,
            stacklevel=3,
        )


def _get_thread_loop() -> asyncio.AbstractEventLoop | None:
    """Get the event loop that was set for this thread, if any; never create one."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)
        try:
            loop = asyncio.get_event_loop_policy()._local._loop  # type: ignore[attr-defined]
        except AttributeError:
            return None

    return loop if isinstance(loop, asyncio.AbstractEventLoop) and not loop.is_closed() else None
