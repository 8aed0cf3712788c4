"""Sub-handlers of handlers limited to fields, with and without fields of their own."""

from recording import record

import kopf


@kopf.on.create('kopfexamples', field='spec.f')
def create(**kwargs):
    record('create', **kwargs)

    @kopf.subhandler(id='child')
    def child(**kwargs):
        record('create/child', **kwargs)

    @kopf.subhandler(id='field', field='g')
    def field(**kwargs):
        record('create/field', **kwargs)

    @kopf.subhandler(id='absolute', field='spec.f')
    def absolute(**kwargs):
        record('create/absolute', **kwargs)


@kopf.on.update('kopfexamples', field='spec.f')
async def update(**kwargs):
    record('update', **kwargs)

    @kopf.subhandler(id='child')
    def child(**kwargs):
        record('update/child', **kwargs)

        @kopf.subhandler(id='grandchild')
        def grandchild(**kwargs):
            record('update/child/grandchild', **kwargs)

    @kopf.subhandler(id='field', field='g')
    def field(**kwargs):
        record('update/field', **kwargs)

    @kopf.subhandler(id='unchanged', field='h')
    def unchanged(**kwargs):
        record('update/unchanged', **kwargs)

    @kopf.subhandler(id='absolute', field='spec.f.g')
    def absolute(**kwargs):
        record('update/absolute', **kwargs)

    @kopf.subhandler(id='new', field='g', new=2)
    def new(**kwargs):
        record('update/new', **kwargs)

    @kopf.subhandler(
        id='when',
        when=lambda old, new, diff, **_: old == {'g': 1, 'h': 1} and new == {'g': 2, 'h': 1},
    )
    def when(**kwargs):
        record('update/when', **kwargs)

    def given(**kwargs):
        record('update/given', **kwargs)

    await kopf.execute(fns={'given': given})


@kopf.on.update('kopfexamples')
def whole(**_):
    @kopf.subhandler(id='field', field='spec.f')
    def field(**kwargs):
        record('whole/field', **kwargs)

        @kopf.subhandler(id='child')
        def child(**kwargs):
            record('whole/field/child', **kwargs)

    @kopf.subhandler(id='status', field='status.s')
    def status(**kwargs):
        record('whole/status', **kwargs)


@kopf.on.field('kopfexamples', field='spec.f')
def field(**kwargs):
    record('field', **kwargs)

    @kopf.subhandler(id='child')
    def child(**kwargs):
        record('field/child', **kwargs)


@kopf.on.delete('kopfexamples', field='spec.f')
def delete(**kwargs):
    record('delete', **kwargs)

    @kopf.subhandler(id='child')
    def child(**kwargs):
        record('delete/child', **kwargs)
