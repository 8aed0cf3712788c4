"""The same with sub-handlers: some are unfinished until the object has ``status.open``."""

from recording import is_open, record

import kopf


@kopf.on.create('kopfexamples')
@kopf.on.update('kopfexamples')
def parent(**_):
    @kopf.subhandler(id='quick')
    def quick(**kwargs):
        record('quick', **{**kwargs, 'retry': None})
        return {'reason': kwargs['reason']}

    @kopf.subhandler(id='fatal')
    def fatal(**kwargs):
        record('fatal', **{**kwargs, 'retry': None})
        raise kopf.PermanentError('never')

    @kopf.subhandler(id='gated')
    def gated(status, **kwargs):
        if not is_open(status):
            raise kopf.TemporaryError('the gate is closed', delay=1)
        record('gated', **{**kwargs, 'retry': 'repeated' if kwargs['retry'] else 'first'})
