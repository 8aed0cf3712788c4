"""
Helpers: small answers to technical questions, with no idea of Kubernetes.
"""
