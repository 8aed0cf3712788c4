"""
API extensions: the definitions of custom resources (CRDs), and the rules for them and for their schemas.
"""
