"""Handlers of single fields, of all kinds."""

from recording import record

import kopf


@kopf.on.field('kopfexamples', field='spec.f')
def field(**kwargs):
    record('field', **kwargs)


@kopf.on.field('kopfexamples', field='spec.deep.er')
def deep(**kwargs):
    record('deep', **kwargs)


@kopf.on.field('kopfexamples', field='metadata.labels.l')
def label(**kwargs):
    record('label', **kwargs)


@kopf.on.field('kopfexamples', field='status.s')
def status(**kwargs):
    record('status', **kwargs)


@kopf.on.create('kopfexamples', field='spec.f')
def create_with_field(**kwargs):
    record('create_with_field', **kwargs)


@kopf.on.update('kopfexamples', field='spec.f')
def update_of_field(**kwargs):
    record('update_of_field', **kwargs)


@kopf.on.delete('kopfexamples', field='spec.f')
def delete_with_field(**kwargs):
    record('delete_with_field', **kwargs)
