"""
Commands: the implementations of the subcommands of ``kopf``, each loaded only when it is called.
"""
