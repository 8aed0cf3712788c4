"""
Controllers: what the cluster does by itself, with no requests behind it.

There are only those without which deletions would never end and CRDs would not be served: no deployments roll out here
and no pods run.
"""
