"""Errors, retries, and their limits."""

from recording import record

import kopf


@kopf.on.create('kopfexamples')
def temporary(**kwargs):
    record('temporary', **kwargs)
    if kwargs['retry'] < 2:
        raise kopf.TemporaryError('again', delay=1)


@kopf.on.create('kopfexamples')
def permanent(**kwargs):
    record('permanent', **kwargs)
    raise kopf.PermanentError('never')


@kopf.on.create('kopfexamples', backoff=1, retries=3)
def limited(**kwargs):
    record('limited', **kwargs)
    raise ValueError('again')


@kopf.on.create('kopfexamples', backoff=1, timeout=1.5)
def timed(**kwargs):
    record('timed', **kwargs)
    raise ValueError('again')


@kopf.on.create('kopfexamples', errors=kopf.ErrorsMode.IGNORED)
def ignored(**kwargs):
    record('ignored', **kwargs)
    raise ValueError('whatever')


@kopf.on.create('kopfexamples', errors=kopf.ErrorsMode.PERMANENT)
def fatal(**kwargs):
    record('fatal', **kwargs)
    raise ValueError('never')


@kopf.on.update('kopfexamples')
def update(**kwargs):
    record('update', **kwargs)


@kopf.on.delete('kopfexamples', backoff=1)
def delete(**kwargs):
    record('delete', **kwargs)
    if kwargs['retry'] < 2:
        raise ValueError('again')
