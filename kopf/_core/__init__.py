"""
The core: the machinery of an operator.

The layers, from the top: ``reactor``, ``engines``, ``intents``, ``actions``. Higher layers import
lower ones, never the reverse.
"""
