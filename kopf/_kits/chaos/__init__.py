"""
Chaos: operators are disturbed and killed on the sandbox, and must come to the same end as if left in peace.
"""
