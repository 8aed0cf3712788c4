"""
The core: what makes an operator move.

The layers, from the top: ``reactor``, ``engines``, ``intents``, ``actions``.
Higher imports lower, never back.
"""
