"""
OpenAPI: the published schemas and paths of the served resources.
"""
