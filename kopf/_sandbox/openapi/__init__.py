"""
OpenAPI: the published schemas and paths of everything that is served.
"""
