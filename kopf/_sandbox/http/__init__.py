"""
HTTP: the server on its port, the routing of calls, and the documents that are of no resource.
"""
