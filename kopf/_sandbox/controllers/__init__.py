"""
Controllers: the changes that the cluster makes by itself, without requests.

Only the controllers needed to finish deletions and to serve CRDs are here: no deployments roll out,
and no pods run.
"""
