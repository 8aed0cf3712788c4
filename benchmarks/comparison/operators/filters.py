"""Filters of all kinds."""

from recording import record

import kopf


@kopf.on.update('kopfexamples', labels={'l': 'yes'})
def by_label(**kwargs):
    record('by_label', **kwargs)


@kopf.on.update('kopfexamples', labels={'l': kopf.PRESENT})
def by_present_label(**kwargs):
    record('by_present_label', **kwargs)


@kopf.on.update('kopfexamples', annotations={'a': kopf.ABSENT})
def by_absent_annotation(**kwargs):
    record('by_absent_annotation', **kwargs)


@kopf.on.update('kopfexamples', labels={'l': lambda value, **_: value == 'maybe'})
def by_callback(**kwargs):
    record('by_callback', **kwargs)


@kopf.on.create('kopfexamples', when=lambda spec, **_: spec.get('x') == 1)
def when(**kwargs):
    record('when', **kwargs)


@kopf.on.update('kopfexamples', field='spec.v', value=5)
def by_value(**kwargs):
    record('by_value', **kwargs)


@kopf.on.field('kopfexamples', field='spec.v', old=5)
def by_old(**kwargs):
    record('by_old', **kwargs)


@kopf.on.update('kopfexamples', field='spec.v', new=kopf.PRESENT)
def by_new(**kwargs):
    record('by_new', **kwargs)


@kopf.on.update('kopfexamples', field='spec.v', old=kopf.ABSENT, new=kopf.PRESENT)
def appeared(**kwargs):
    record('appeared', **kwargs)


@kopf.on.field('kopfexamples', field='spec.v', old=lambda value, **_: value == 6)
def by_callback_of_old(**kwargs):
    record('by_callback_of_old', **kwargs)


@kopf.on.create('kopfexamples', field='spec.v', value=kopf.ABSENT)
def create_without_field(**kwargs):
    record('create_without_field', **kwargs)


@kopf.on.create('kopfexamples', field='spec.v', value=lambda value, **_: value is None)
def create_by_callback(**kwargs):
    record('create_by_callback', **kwargs)
