"""
Webhooks: servers, tunnels and certificates that bring admission requests to the operator.
"""
