"""Sub-handlers: declared and given, nested, failing, with results."""

from recording import record

import kopf


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples')
async def parent(spec, **kwargs):
    record('parent', **kwargs)

    for item in spec.get('items', []):

        @kopf.subhandler(id=f'item-{item}')
        def child(item=item, **kwargs):
            record(f'child {item}', **kwargs)
            if item == 'failing' and kwargs['retry'] < 2:
                raise kopf.TemporaryError('again', delay=1)
            if item == 'fatal':
                raise kopf.PermanentError('never')
            return item

    @kopf.subhandler(id='nesting')
    def nesting(**kwargs):
        record('nesting', **kwargs)

        @kopf.subhandler(id='nested')
        def nested(**kwargs):
            record('nested', **kwargs)
            if kwargs['retry'] < 1:
                raise kopf.TemporaryError('again', delay=1)


@kopf.on.create('kopfexamples')
async def executor(**kwargs):
    record('executor', **kwargs)

    def first(**kwargs):
        record('first', **kwargs)

    def second(**kwargs):
        record('second', **kwargs)
        if kwargs['retry'] < 1:
            raise kopf.TemporaryError('again', delay=1)

    await kopf.execute(fns={'first': first, 'second': second})
    record('executed', **kwargs)
