"""
Structs: the words of the domain as types: bodies, diffs, patches, references, credentials.

They know how to be read, compared and changed, and never talk to anyone.
"""
