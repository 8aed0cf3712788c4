"""
The sandbox: a Kubernetes API server in this process, for trying and testing operators with nothing installed.

It is a development tool. Its promise is fidelity: the same requests get the same answers as from a real cluster.
"""
