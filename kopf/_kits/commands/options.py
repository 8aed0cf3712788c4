"""
Options: the options that the commands share, on the command line and in code.

The environment variables are named after the parameters of the functions, not after the options:
renaming a parameter renames its variable.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import click.shell_completion

from kopf._core.actions import loggers

if TYPE_CHECKING:
    import asyncio

    from kopf._cogs.aiokits import flags
    from kopf._cogs.configs import settings as settings_
    from kopf._cogs.structs import vaults
    from kopf._core.intents import registries

Decorated = TypeVar('Decorated', bound=Callable[..., Any])

DEV_PRIORITY = 666

option = functools.partial(click.option, show_envvar=True)
"""An option whose help names the environment variable that sets it."""


@dataclasses.dataclass
class CLIControls:
    """Controls that have no command-line options: ``obj=`` of commands called from code."""

    ready_flag: 'flags.Flag | None' = None
    stop_flag: 'flags.Flag | None' = None
    vault: 'vaults.Vault | None' = None
    registry: 'registries.OperatorRegistry | None' = None
    settings: 'settings_.OperatorSettings | None' = None
    loop: 'asyncio.AbstractEventLoop | None' = None


def logging_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """
    Add the logging options, and configure logging before the command is called.

    The function of the command does not get these options.
    """

    @option('-v', '--verbose', is_flag=True, help='Show what the framework does, in detail.')
    @option('-d', '--debug', is_flag=True, help='Show everything, also what the libraries do.')
    @option('-q', '--quiet', is_flag=True, help='Show only warnings and errors.')
    @option(
        '--log-format',
        type=click.Choice([item.name.lower() for item in loggers.LogFormat], case_sensitive=False),
        default='full',
        show_default=True,
        callback=_parse_log_format,
        help='How messages look: only the texts, or also the times, levels and loggers, or JSON '
        'for machines.',
    )
    @option(
        '--log-prefix/--no-log-prefix',
        default=None,
        show_default='yes, but not in JSON',
        help='Begin messages with the names of objects.',
    )
    @option(
        '--log-refkey',
        metavar='KEY',
        show_default=loggers.DEFAULT_REFKEY,
        help='In JSON, where to put the references of objects.',
    )
    @functools.wraps(fn)  # inherits the options that are already there
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        chosen = {name: kwargs.pop(name) for name in ('debug', 'verbose', 'quiet')}
        style = {name: kwargs.pop(name) for name in ('log_format', 'log_prefix', 'log_refkey')}
        loggers.configure(**chosen, **style)
        return fn(*args, **kwargs)

    return wrapper


def scope_options(*, one: str, whole: str) -> Callable[[Decorated], Decorated]:
    """Add the options for namespaces and for the whole cluster, with these help texts."""

    def decorate(fn: Decorated) -> Decorated:
        fn = option('-A', '--all-namespaces', 'clusterwide', is_flag=True, help=whole)(fn)
        return option(
            '-n',
            '--namespace',
            'namespaces',
            multiple=True,
            metavar='NAME',
            callback=_add_namespace,
            help=f"{one}, or of those that match a pattern, e.g. 'app-*,!*-test'. Can be repeated.",
        )(fn)

    return decorate


def priority_options(*, text: str, default: int) -> Callable[[Decorated], Decorated]:
    """Add the options for the priority among operators, with this help text and this default."""

    def decorate(fn: Decorated) -> Decorated:
        fn = option(
            '-p',
            '--priority',
            type=int,
            metavar='NUMBER',
            show_default=str(default),
            callback=_prefer_dev,
            help=text,
        )(fn)
        return option(
            '--dev',
            is_flag=True,
            is_eager=True,  # parsed before the priority
            help=f'Use the priority of developers, {DEV_PRIORITY}, and ignore --priority.',
        )(fn)

    return decorate


def complete_paths(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """
    Let the shell complete files and directories.

    Unlike with ``click.Path``, several values in an environment variable are separated by spaces.
    """
    return [click.shell_completion.CompletionItem(incomplete, type='file')]


def _parse_log_format(
    context: click.Context, parameter: click.Parameter, value: str
) -> loggers.LogFormat:
    return loggers.LogFormat[value.upper()]


def _prefer_dev(
    context: click.Context, parameter: click.Parameter, value: int | None
) -> int | None:
    return DEV_PRIORITY if context.params.get('dev') else value


def _add_namespace(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Add the namespace of the variable for a single one."""
    extra = os.environ.get(f'{context.auto_envvar_prefix}_NAMESPACE')
    return tuple(dict.fromkeys([*value, *([extra] if extra else [])]))
