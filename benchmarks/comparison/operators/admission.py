"""Admission handlers of both kinds, with all kinds of filters."""

import reviewing  # noqa: F401  # the server
from recording import record

import kopf


def declare(kind, name, **options):
    id = f'{kind}-{name}'

    @getattr(kopf.on, kind)('kopfexamples', id=id, **options)
    def fn(operation, patch, warnings, **kwargs):
        record(id, reason=operation, **{**kwargs, 'retry': None})
        warnings.append(id)
        if kind == 'mutate':
            patch.status[id] = operation


for kind in ['validate', 'mutate']:
    declare(kind, 'all')
    declare(kind, 'field', field='spec.f')
    declare(kind, 'value', field='spec.f', value=2)
    declare(kind, 'absent', field='spec.f', value=kopf.ABSENT)
    declare(kind, 'label', labels={'l': 'yes'})
    declare(kind, 'when', when=lambda old, new, **_: bool(old) and bool(new))
    declare(kind, 'status', subresource='status')


@kopf.on.validate('kopfexamples', id='deny', field='spec.denied')
def deny(**_):
    raise kopf.AdmissionError('No.', code=499)


@kopf.on.validate('kopfexamples', id='patch', field='spec.patched')
def patch(patch, **_):
    patch.status['patched'] = True
