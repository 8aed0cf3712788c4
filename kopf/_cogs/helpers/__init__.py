"""
Helpers: small technical tools that know nothing of Kubernetes.
"""
