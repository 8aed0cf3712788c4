"""
The sandbox: a Kubernetes API server in this process, to try and test operators with nothing
installed.

It is a development tool. It promises fidelity: a request gets the same response as in a real
cluster.
"""
