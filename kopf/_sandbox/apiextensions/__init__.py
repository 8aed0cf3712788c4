"""
API extensions: custom resource definitions (CRDs), and the validation of them and of their schemas.
"""
