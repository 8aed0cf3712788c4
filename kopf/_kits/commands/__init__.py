"""
Commands: what is behind the subcommands of ``kopf``, each loaded only when it is called.
"""
