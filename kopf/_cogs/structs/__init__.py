"""
Structs: the types of the domain: bodies, diffs, patches, references, credentials.

They can be read, compared and changed, and make no requests.
"""
