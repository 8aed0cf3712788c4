"""Several functions with one id, as in operators of several files."""

from recording import record

import kopf


def declare(name):
    @kopf.on.create('kopfexamples', id='fn')
    @kopf.on.update('kopfexamples', id='fn')
    def fn(**kwargs):
        record(f'fn of {name}', **kwargs)
        return {name: kwargs['reason'].value}

    @kopf.on.event('kopfexamples', id='event', when=lambda event, **_: event['type'] == 'ADDED')
    def event(**kwargs):
        record(f'event of {name}', **kwargs)


declare('one')
declare('two')
