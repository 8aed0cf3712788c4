"""
Groups: the ``kopf`` command itself, with its subcommands.

Each subcommand is loaded only when it is called, so that ``kopf --help`` and shell completion stay
fast.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import click

from kopf._cogs.helpers import versions


@dataclasses.dataclass(frozen=True)
class Subcommand:
    """The location of a subcommand, and its text in the list of subcommands."""

    module: str
    attribute: str
    help: str

    def load(self) -> click.Command:
        command = getattr(importlib.import_module(self.module), self.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f'{self.module}.{self.attribute} is not a command: {command!r}')
        return command


class LazyGroup(click.Group):
    """A group of subcommands that are imported when called, not when listed."""

    is_process = False  # whether the process ends with the command

    def __init__(self, *args: Any, subcommands: Mapping[str, Subcommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.subcommands = subcommands

    def __call__(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        """Run as the program itself. Inside another process, use `main` of the group."""
        self.is_process = standalone_mode
        return super().__call__(*args, standalone_mode=standalone_mode, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        subcommand = self.subcommands.get(cmd_name)
        return None if subcommand is None else subcommand.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section('Commands'):
            formatter.write_dl(
                [(name, self.subcommands[name].help) for name in self.list_commands(ctx)]
            )


SUBCOMMANDS = {
    'crd': Subcommand(
        'kopf._kits.commands.crd_command', 'crd', help='Print definitions of custom resources.'
    ),
    'freeze': Subcommand(
        'kopf._kits.commands.peering_commands', 'freeze', help='Pause the operators of a peering.'
    ),
    'resume': Subcommand(
        'kopf._kits.commands.peering_commands', 'resume', help='End the pause of operators.'
    ),
    'run': Subcommand('kopf._kits.commands.runs', 'run', help='Run an operator.'),
    'sandbox': Subcommand(
        'kopf._kits.commands.sandbox_command', 'sandbox', help='Serve a Kubernetes API in memory.'
    ),
}


@click.group(
    name='kopf',
    cls=LazyGroup,
    subcommands=SUBCOMMANDS,
    context_settings={'auto_envvar_prefix': 'KOPF', 'max_content_width': 100},
)
@click.version_option(
    versions.version,
    prog_name='kopf',
    message=f'%(prog)s, version %(version)s ({versions.description})',
)
def main() -> None:
    """
    Run and try Kubernetes operators written in Python.

    To try it with no cluster at all: kopf run --sandbox handlers.py

    \b
    To complete commands and options in the shell, add to its settings:
      bash:  eval "$(_KOPF_COMPLETE=bash_source kopf)"
      zsh:   eval "$(_KOPF_COMPLETE=zsh_source kopf)"
      fish:  _KOPF_COMPLETE=fish_source kopf | source
    """
