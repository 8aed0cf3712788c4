"""
Peering commands: ``kopf freeze`` and ``kopf resume`` pause and resume the operators of a peering.

Each command writes into the peering objects once, on behalf of a person, and exits. Mistakes in the
command line are reported in one line with the exit code 2; errors of the cluster, with the code 1.
"""

import logging
from collections.abc import Callable
from typing import Any

import click

from kopf._kits.commands import options

logger = logging.getLogger('kopf.cli')

PRIORITY = 100
"""The default priority of the record that pauses the operators."""


scope_options = options.scope_options(
    one='In the peering of this namespace',
    whole='In the peering of the whole cluster; this is the default.',
)


def identity_option(fn: options.Decorated) -> options.Decorated:
    """Add the option for the identity under which the record is written."""
    return options.option(
        '-i', '--id', metavar='TEXT', show_default='user@host', help='In whose name.'
    )(fn)


def peering_option(command: str) -> Callable[[options.Decorated], options.Decorated]:
    """Add the option for the name of the peering."""
    return options.option(
        '-P',
        '--peering',
        'peering_name',
        envvar=f'KOPF_{command}_PEERING',
        required=True,
        metavar='NAME',
        help='The name of the peering.',
    )


@click.command
@scope_options
@options.priority_options(
    text='Pause the operators of this priority and of lower ones.', default=PRIORITY
)
@identity_option
@peering_option('FREEZE')
@options.option(
    '-t',
    '--lifetime',
    type=click.IntRange(min=1),
    required=True,
    metavar='SECONDS',
    help='For how long, unless it is ended before that.',
)
@options.option(
    '-m',
    '--message',
    metavar='TEXT',
    help='Why: shown in the peering and in the logs.',
)
@options.logging_options
@click.make_pass_decorator(options.CLIControls, ensure=True)
def freeze(
    controls: options.CLIControls,
    /,
    *,
    priority: int | None,
    lifetime: int,
    message: str | None,
    dev: bool,
    **chosen: Any,
) -> None:
    """
    Pause the operators of a peering for some time, or until kopf resume.

    They resume automatically when the time is over. Operators of higher priorities, of other
    peerings, and standalone operators are not paused.

    \b
    kopf freeze --all-namespaces --peering=default --lifetime=600 --message="An upgrade."
    """
    from kopf._core.engines.peering import ranking

    if lifetime > ranking.LONGEST_LIFETIME:
        logger.warning(
            'Operators pause for %d s at most, not for %d s. To pause them for longer, repeat the '
            'command before that time is over.',
            ranking.LONGEST_LIFETIME,
            lifetime,
        )

    chosen_priority = PRIORITY if priority is None else priority
    _order(controls, chosen, ranking.Record(chosen_priority, lifetime, message=message or ''))


@click.command
@scope_options
@identity_option
@peering_option('RESUME')
@options.logging_options
@click.make_pass_decorator(options.CLIControls, ensure=True)
def resume(controls: options.CLIControls, /, **chosen: Any) -> None:
    """
    Resume the operators of a peering that were paused by kopf freeze.

    Only the pause made under the same identity is ended: add --id if the operators were paused by
    another user or from another machine.
    """
    _order(controls, chosen, None)


def _order(controls: options.CLIControls, chosen: dict[str, Any], record: Any) -> None:
    from kopf._kits.commands import freezing

    clusterwide = chosen['clusterwide']
    patterns = chosen['namespaces']
    if clusterwide and patterns:
        raise click.UsageError(
            'Either --all-namespaces or --namespace can be used, not both '
            '(check also the environment variables).'
        )

    if not clusterwide and not patterns:
        logger.warning(
            'The peering of the whole cluster is used, as no scope is given. '
            'Add --all-namespaces to confirm, or --namespace to choose.'
        )

    freezing.execute(
        freezing.Order(
            name=chosen['peering_name'],
            identity=chosen['id'],
            clusterwide=clusterwide or not patterns,
            patterns=patterns,
            record=record,
        ),
        controls,
    )
