"""
Cogs: parts that know nothing of operators.

The layers, from the top: ``clients``, ``configs``, ``structs``, ``aiokits``, ``helpers``.
Higher imports lower, never back.
"""
