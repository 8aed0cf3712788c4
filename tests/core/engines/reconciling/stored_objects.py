"""
Resources and objects for the tests of stores and relations.
"""

from kopf._cogs.structs import references

PARENTS = references.Resource('kopf.dev', 'v1', 'databases', kind='Database', namespaced=True)
CLUSTER_PARENTS = references.Resource('kopf.dev', 'v1', 'fleets', kind='Fleet', namespaced=False)
CHILDREN = references.Resource('', 'v1', 'services', kind='Service', namespaced=True)
SECRETS = references.Resource('', 'v1', 'secrets', kind='Secret', namespaced=True)
NODES = references.Resource('', 'v1', 'nodes', kind='Node', namespaced=False)


def build_body(name, uid, version, *, namespace='ns', owner=None, labels=None, **fields):
    metadata = {'name': name, 'uid': uid, 'resourceVersion': version}
    if namespace is not None:
        metadata['namespace'] = namespace
    if owner is not None:
        metadata['ownerReferences'] = [{'uid': owner, 'controller': True}]
    if labels is not None:
        metadata['labels'] = labels
    return {'metadata': metadata, **fields}
