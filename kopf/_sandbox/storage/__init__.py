"""
Storage: the objects, their versions, and the history of their changes.
"""
