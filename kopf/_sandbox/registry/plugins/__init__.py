"""
Plugins: the admission that is built into the API server, as it is enabled by default.
"""
