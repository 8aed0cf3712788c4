"""
Schemas at work: pruning, defaulting and validation of values.
"""
