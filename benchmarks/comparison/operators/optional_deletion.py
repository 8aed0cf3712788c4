"""Deletion handlers that do not hold the objects, and those that hold only some of them."""

from recording import record

import kopf


@kopf.on.create('kopfexamples')
def create(**kwargs):
    record('create', **kwargs)


@kopf.on.delete('kopfexamples', optional=True)
def optional(**kwargs):
    record('optional', **kwargs)


@kopf.on.delete('kopfexamples', labels={'held': 'yes'})
def held(**kwargs):
    record('held', **kwargs)
