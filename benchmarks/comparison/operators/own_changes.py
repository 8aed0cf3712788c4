"""Handlers that change the same fields that they handle."""

from recording import record

import kopf


@kopf.on.create('kopfexamples')
def create(patch, **kwargs):
    record('create', **kwargs)
    patch.spec['created'] = True


@kopf.on.update('kopfexamples')
def update(patch, spec, **kwargs):
    record('update', **kwargs)
    patch.spec['twice'] = 2 * spec.get('x', 0)


@kopf.on.field('kopfexamples', field='spec.twice')
def twice(**kwargs):
    record('twice', **kwargs)
