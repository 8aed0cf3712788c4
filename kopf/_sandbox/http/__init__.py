"""
HTTP: the server on its port, the routing of calls, and the non-resource documents.
"""
