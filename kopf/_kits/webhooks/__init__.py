"""
Webhooks: servers, tunnels and certificates that bring admission requests from a cluster to the operator.
"""
