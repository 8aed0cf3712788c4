"""
Meta: what all other parts share: kinds, requests, errors, names, selectors, schemas.
"""
