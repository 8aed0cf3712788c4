"""
Runs: ``kopf run``, which runs an operator until it is interrupted.

Mistakes in the command line are reported in one line with the exit code 2; errors of the operator,
including handlers that cannot be found, with the code 1. Errors in the users' files are shown with
tracebacks that begin in those files. Bugs of the framework are shown with full tracebacks.
"""

import contextlib
import dataclasses
import gc
import logging
import pathlib
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from kopf._cogs.codecs import resource_types
from kopf._cogs.helpers import loaders
from kopf._kits.commands import interruptions, options

if TYPE_CHECKING:
    import asyncio

    from kopf._core.intents import registries

logger = logging.getLogger('kopf.cli')

_HINTS = {
    '--apply': 'use kubectl for other clusters.',
    '--workloads': 'other clusters have their own.',
    '--kubeconfig': 'set the environment variable KUBECONFIG for other clusters.',
}

COLLECTOR_THRESHOLD = 10_000
"""The number of new objects after which the garbage collector runs."""


class Failure(click.ClickException):
    """The operator failed for a reason that needs no traceback; the error is the ``__cause__``."""

    exit_code = 1


class BrokenCode(click.ClickException):
    """The users' code failed while it was loaded; the error is the ``__cause__``."""

    exit_code = 1

    def __init__(self, error: BaseException) -> None:
        frames = loaders.skip_own_frames(error.__traceback__)
        super().__init__(''.join(traceback.format_exception(type(error), error, frames)))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, nl=False, err=True)


def explain(error: Exception) -> click.ClickException:
    """
    Return the failure to show for an error of the users' code.

    Classes that cannot be resources need one line: their message says what to change.
    """
    if not isinstance(error, resource_types.DeclarationError | resource_types.MissingLibraryError):
        return BrokenCode(error)

    place = loaders.find_place(error.__traceback__)
    return Failure(str(error) if place is None else f'{place}: {error}')


@click.command
@options.scope_options(
    one='Serve the objects of this namespace', whole='Serve the whole cluster; this is the default.'
)
@options.priority_options(
    text='Pause the operators of lower priorities; be paused by those of the same and of higher '
    'ones.',
    default=0,
)
@options.option(
    '--standalone',
    is_flag=True,
    default=None,
    help='Neither pause other operators nor be paused by them.',
)
@options.option(
    '-P',
    '--peering',
    'peering_name',
    envvar='KOPF_RUN_PEERING',
    metavar='NAME',
    show_default="'default', if it exists",
    help='Where to meet other operators, and to pause for them; it is waited for if it does not '
    'exist.',
)
@options.option(
    '--leader-elect',
    'leader_elect',
    metavar='NAME',
    help='The Lease by which one of several replicas is elected; the others stand by.',
)
@options.option(
    '--leader-elect-namespace',
    'leader_elect_namespace',
    metavar='NAMESPACE',
    show_default='that of the pod',
    help='The namespace of that Lease.',
)
@options.option(
    '-L',
    '--liveness',
    'liveness_endpoint',
    metavar='URL',
    help='Where to serve the probes and metrics, e.g. http://0.0.0.0:8080/healthz.',
)
@options.option(
    '-m',
    '--module',
    'modules',
    multiple=True,
    metavar='NAME',
    help='A module with handlers, by its full name. Can be repeated.',
)
@options.option(
    '--sandbox',
    'is_sandboxed',
    envvar='KOPF_RUN_SANDBOX',
    is_flag=True,
    help='Run on a cluster in memory, which is gone in the end: nothing else is needed.',
)
@options.option(
    '--apply',
    'sources',
    envvar='KOPF_RUN_APPLY',
    multiple=True,
    metavar='FILE',
    shell_complete=options.complete_paths,
    help='For the sandbox, manifests to begin with: a file, a directory, or - for the standard '
    'input. Can be repeated.',
)
@options.option(
    '--workloads',
    'has_workloads',
    envvar='KOPF_RUN_WORKLOADS',
    is_flag=True,
    help='For the sandbox, let deployments roll out, jobs complete, and pods become ready.',
)
@options.option(
    '--kubeconfig',
    envvar='KOPF_RUN_KUBECONFIG',
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    metavar='FILE',
    show_default='a private temporary file, the same one for the same current directory',
    help='For the sandbox, where to write its kubeconfig, and to leave it there.',
)
@options.option(
    '--install-crds',
    'is_installing',
    envvar='KOPF_RUN_INSTALL_CRDS',
    is_flag=True,
    help='Before the start, install the definitions of the resources that are declared as classes.',
)
@click.argument('paths', nargs=-1, shell_complete=options.complete_paths)
@options.logging_options
@click.make_pass_decorator(options.CLIControls, ensure=True)
def run(  # noqa: PLR0913
    controls: options.CLIControls,
    /,
    *,
    paths: Sequence[str],
    modules: Sequence[str],
    is_sandboxed: bool,
    sources: Sequence[str],
    kubeconfig: pathlib.Path | None,
    has_workloads: bool,
    dev: bool,
    **chosen: Any,
) -> None:
    """
    Run an operator with the handlers of these files and modules, until Ctrl-C.

    Inside a pod, the operator uses the cluster of the pod; elsewhere, the current context of
    kubectl. Login handlers, if any, override that.

    \b
    kopf run --all-namespaces handlers.py
    kopf run --namespace='app-*' --module=package.handlers --log-format=json
    kopf run --sandbox --apply=crd.yaml --verbose handlers.py
    """
    is_installing = chosen.pop('is_installing')
    sandboxed = {'--apply': sources, '--kubeconfig': kubeconfig, '--workloads': has_workloads}
    _check_usage(chosen, is_sandboxed=is_sandboxed, sandboxed=sandboxed)
    _check_liveness(chosen['liveness_endpoint'])

    with contextlib.ExitStack() as stack:
        interruption = stack.enter_context(interruptions.Interruption(is_process=_is_process()))
        stack.enter_context(_default_registry(controls.registry))
        if is_sandboxed:
            from kopf._kits.commands import sandboxing

            bodies = sandboxing.read_manifests(sources)
            first = sandboxing.select_early(bodies) if is_installing else bodies
            sandbox = stack.enter_context(
                sandboxing.serve_sandbox(first, kubeconfig, has_workloads=has_workloads)
            )
            definitions = load(paths, modules)
            if is_installing:
                sandboxing.install(definitions, bodies, sandbox)
            if not click.get_current_context().params['quiet']:
                sandboxing.greet(sandbox)
            controls = stack.enter_context(
                sandboxing.applied(bodies, sandbox, sandboxing.connect(controls, sandbox))
            )
        else:
            definitions = load(paths, modules)
            if is_installing:
                _install(definitions, controls)
        _choose_scope(chosen, is_sandboxed=is_sandboxed)
        operate(controls, chosen, interruption)

    if _is_process():
        _announce_waiting()


def _announce_waiting() -> None:
    """Warn if threads keep the process alive: Python waits for all but daemon threads."""
    others = set(threading.enumerate()) - {threading.current_thread()}
    busy = [thread.name for thread in others if not thread.daemon and not _is_idle(thread)]
    if busy:
        logger.warning(
            'The process waits for its threads, %d of them: %s. Press Ctrl-C again to leave them '
            'as they are.',
            len(busy),
            ', '.join(sorted(busy)),
        )


def _is_idle(thread: threading.Thread) -> bool:
    """
    Return whether a thread has ended, or is an idle thread of a pool.

    Pools end with the process.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is None or frame.f_globals.get('__name__') == 'concurrent.futures.thread'


def _is_process() -> bool:
    """Return whether the process runs nothing but this command."""
    return bool(getattr(click.get_current_context().find_root().command, 'is_process', False))


def load(paths: Sequence[str], modules: Sequence[str]) -> Sequence[str]:
    """
    Load the users' code; return the names of the CRDs that are declared there as classes.

    Raises `Failure` or `BrokenCode` if it cannot be loaded.
    """
    from kopf._core.intents import arguments, registries

    try:
        with resource_types.collecting() as names:
            loaders.preload(paths, modules)
        arguments.check_signatures(registries.get_default_registry()._iter_handlers())
    except loaders.LoadingError as e:
        raise Failure(str(e)) from e.__cause__
    except arguments.SignatureError as e:
        raise Failure(str(e)) from e
    except Exception as e:
        raise explain(e) from e

    if not any(registries.get_default_registry()._iter_handlers()):
        _complain_of_no_handlers(
            'No files and no modules are given, so there are no handlers: try kopf run --help.'
            if not paths and not modules
            else 'There are no handlers in these files and modules: nothing to do for the operator.'
        )

    return names


def _install(names: Sequence[str], controls: options.CLIControls) -> None:
    from kopf._kits.commands import crd_installing
    from kopf._kits.schemas import crds

    if not names:
        raise click.UsageError('--install-crds: there are no classes with @kopf.crd in this code.')
    crd_installing.install([crds.build_crd(name) for name in names], controls)


def _complain_of_no_handlers(message: str) -> None:
    """Refuse to run; if called from code, only warn: it can declare handlers later."""
    if _is_process():
        raise click.UsageError(message)
    logger.warning('%s', message)


def operate(
    controls: options.CLIControls, chosen: dict[str, Any], interruption: interruptions.Interruption
) -> None:
    """Run the operator until it ends, unless the process was interrupted before the start."""
    from kopf._cogs.structs import credentials, leaderships, reviews
    from kopf._core.engines.activities import operator_handlers
    from kopf._core.engines.probing import endpoints
    from kopf._core.intents import arguments
    from kopf._core.reactor import operator_plans, running, stopping

    if _is_process():
        stopping.end_with_operator()
        _calm_collector()

    given = {field.name: getattr(controls, field.name) for field in dataclasses.fields(controls)}
    with _event_loop(given.pop('loop')) as loop:
        interruption.check()
        try:
            running.run(loop=loop, **given, **chosen)
        except (
            credentials.LoginError,
            operator_handlers.ActivityError,
            arguments.SignatureError,
            operator_plans.SettingsError,
            endpoints.EndpointError,
            reviews.ServerError,
        ) as e:
            raise Failure(str(e)) from e
        except leaderships.LeadershipLostError as e:
            if _is_process():  # other replicas do not wait for the threads of this one
                logger.error('%s', e)
                stopping.exit_at_once(Failure.exit_code)
            raise Failure(str(e)) from e


def _calm_collector() -> None:
    """
    Make the garbage collector run less often, and skip the objects of the loaded code.

    There is almost no garbage to collect: most objects are freed by reference counting. With the
    default thresholds, the collector takes a tenth of the operator's time.
    """
    gc.collect()
    gc.freeze()
    if gc.get_threshold()[0] < COLLECTOR_THRESHOLD:  # keep a higher threshold
        gc.set_threshold(COLLECTOR_THRESHOLD, *gc.get_threshold()[1:])


def _check_usage(
    chosen: dict[str, Any], *, is_sandboxed: bool, sandboxed: Mapping[str, object]
) -> None:
    for name in [name for name, value in sandboxed.items() if value and not is_sandboxed]:
        raise click.UsageError(f'{name} is only for --sandbox: {_HINTS[name]}')
    if chosen['clusterwide'] and chosen['namespaces']:
        raise click.UsageError(
            'Either --all-namespaces or --namespace can be used, not both '
            '(check also the variables KOPF_RUN_CLUSTERWIDE, _NAMESPACES, _NAMESPACE).'
        )


def _choose_scope(chosen: dict[str, Any], *, is_sandboxed: bool) -> None:
    """Serve the whole cluster unless the scope is specified."""
    if chosen['clusterwide'] or chosen['namespaces']:
        return
    chosen['clusterwide'] = True
    if not is_sandboxed:
        logger.warning(
            'The whole cluster is served, as no scope is given. '
            'Add --all-namespaces to confirm, or --namespace to choose.'
        )


def _check_liveness(url: str | None) -> None:
    from kopf._core.engines.probing import endpoints

    try:
        if url:
            endpoints.parse_endpoint(url)
    except endpoints.EndpointError as e:
        raise click.UsageError(str(e)) from e


@contextlib.contextmanager
def _default_registry(registry: 'registries.OperatorRegistry | None') -> Iterator[None]:
    """Let the decorators use this registry while the operator is loaded and runs."""
    if registry is None:
        yield
        return

    from kopf._core.intents import registries

    previous = registries.get_default_registry()
    registries.set_default_registry(registry)
    try:
        yield
    finally:
        registries.set_default_registry(previous)


@contextlib.contextmanager
def _event_loop(loop: 'asyncio.AbstractEventLoop | None') -> Iterator['asyncio.AbstractEventLoop']:
    """Use this loop, or create the fastest one available; the created loop is closed at the end."""
    import asyncio

    from kopf._sandbox import threads

    if loop is not None:
        yield loop
        return

    with asyncio.Runner(
        debug=click.get_current_context().params['debug'] or None,
        loop_factory=threads.choose_loop_factory(),
    ) as runner:
        yield runner.get_loop()
