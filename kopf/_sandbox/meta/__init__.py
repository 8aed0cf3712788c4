"""
Meta: the parts shared by all others: kinds, requests, errors, names, selectors, schemas.
"""
