"""
Level-triggered reconciliation: the store of objects, and the relations between them.
"""
