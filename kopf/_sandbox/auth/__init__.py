"""
Authentication and authorization: the user of a request, and the user's permissions.
"""
