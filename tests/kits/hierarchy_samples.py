"""
An object that owns others, and the reference to it.
"""

OWNER = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'metadata': {
        'name': 'kopf-example-1',
        'namespace': 'ns',
        'uid': 'uid1',
        'labels': {'somelabel': 'somevalue'},
        'resourceVersion': '123',
    },
    'spec': {'field': 'value'},
}
REFERENCE = {
    'controller': True,
    'blockOwnerDeletion': True,
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'name': 'kopf-example-1',
    'uid': 'uid1',
}
