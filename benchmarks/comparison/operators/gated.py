"""
Cycles that stay unfinished until the object has ``status.open``; some handlers finish earlier.
"""

from recording import is_open, record

import kopf

LONG_ID = 'x' * 80


def pass_gate(status):
    if not is_open(status):
        raise kopf.TemporaryError('the gate is closed', delay=1)


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples')
@kopf.on.delete('kopfexamples')
def quick(**kwargs):
    record('quick', **{**kwargs, 'retry': None})
    return {'reason': kwargs['reason']}


@kopf.on.create('kopfexamples', id=LONG_ID)
@kopf.on.update('kopfexamples', id=LONG_ID)
def lengthy(**kwargs):
    record('lengthy', **{**kwargs, 'retry': None})


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples')
@kopf.on.delete('kopfexamples')
def gated(status, **kwargs):
    pass_gate(status)
    record('gated', **{**kwargs, 'retry': 'repeated' if kwargs['retry'] else 'first'})


@kopf.on.field('kopfexamples', field='spec.f')
def field(status, **kwargs):
    pass_gate(status)
    record('field', **{**kwargs, 'retry': 'repeated' if kwargs['retry'] else 'first'})


@kopf.on.resume('kopfexamples')
def resume(**kwargs):
    record('resume', **{**kwargs, 'retry': None})
