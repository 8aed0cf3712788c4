"""
CEL: the expressions in definitions and policies: their syntax, types, functions, and evaluation.
"""
