"""
The ``kopf`` command, and the parts needed to make similar commands or to call it from code.

The subcommands are loaded when they are used, as they import much more than the command itself.
"""

from typing import TYPE_CHECKING, Any

from kopf._kits.commands.groups import SUBCOMMANDS, Subcommand, main
from kopf._kits.commands.options import CLIControls, logging_options

if TYPE_CHECKING:
    from kopf._kits.commands.peering_commands import freeze, resume
    from kopf._kits.commands.runs import run

__all__ = [
    'SUBCOMMANDS',
    'CLIControls',
    'Subcommand',
    'freeze',
    'logging_options',
    'main',
    'resume',
    'run',
]

if not TYPE_CHECKING:  # otherwise, misspelt names would pass the type checks

    def __getattr__(name: str) -> Any:
        if name not in ('freeze', 'resume', 'run'):
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        return SUBCOMMANDS[name].load()

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
