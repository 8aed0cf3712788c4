"""
Indexing: in-memory values of objects by keys of the users' choice.
"""
