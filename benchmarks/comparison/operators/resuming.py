"""Resuming, alone and mixed with other causes."""

from recording import is_open, record

import kopf


@kopf.on.resume('kopfexamples')
def resume(**kwargs):
    record('resume', **kwargs)


@kopf.on.resume('kopfexamples', deleted=True)
def resume_deleted(**kwargs):
    record('resume_deleted', **kwargs)


@kopf.on.resume('kopfexamples')
@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples')
def mixed(**kwargs):
    record('mixed', **kwargs)


@kopf.on.update('kopfexamples')
def update(**kwargs):
    record('update', **kwargs)


@kopf.on.delete('kopfexamples')
def delete(status, **kwargs):
    if not is_open(status):
        raise kopf.TemporaryError('the gate is closed', delay=1)
    record('delete', **{**kwargs, 'retry': None})
