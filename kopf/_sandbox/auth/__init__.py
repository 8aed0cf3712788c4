"""
Authentication and authorization: who makes a request, and whether they may.
"""
