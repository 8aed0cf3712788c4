"""
The ``kopf`` command, and what is needed to make more commands like it or to call it from code.
"""
from kopf._kits.commands.groups import SUBCOMMANDS, Subcommand, main
from kopf._kits.commands.options import CLIControls, logging_options

__all__ = ['SUBCOMMANDS', 'CLIControls', 'Subcommand', 'logging_options', 'main']
