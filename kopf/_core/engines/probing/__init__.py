"""
Probing: the health and the metrics of the operator, and the HTTP server that reports them.
"""
