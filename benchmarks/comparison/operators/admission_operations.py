"""Admission handlers limited by operations, each called only for what Kubernetes would send."""

import reviewing  # noqa: F401  # the server
from recording import record

import kopf


def declare(kind, name, **options):
    id = f'{kind}-{name}'

    @getattr(kopf.on, kind)('kopfexamples', id=id, **options)
    def fn(operation, **kwargs):
        record(id, reason=operation, **{**kwargs, 'retry': None})


for kind in ['validate', 'mutate']:
    declare(kind, 'default')
    declare(kind, 'creation', operations=['CREATE'])
    declare(kind, 'deletion', operations=['DELETE'])
    declare(kind, 'several', operations=['UPDATE', 'DELETE'])
    declare(kind, 'each', operations=['CREATE', 'UPDATE', 'DELETE', 'CONNECT'])
