"""
Activities: the operator starts, logs in and cleans up, by its own handlers with no objects.
"""
