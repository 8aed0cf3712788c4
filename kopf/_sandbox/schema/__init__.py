"""
Schemas in use: pruning, defaulting and validation of values.
"""
