"""
HTTP: the only stack of HTTP for requests to the API, with connections of our own or of aiohttp.
"""
