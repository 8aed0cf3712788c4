"""Results of handlers, and changes of objects by handlers."""

from recording import record

import kopf


@kopf.on.create('kopfexamples')
def mapping(**kwargs):
    record('mapping', **kwargs)
    return {'a': {'b': 1}, 'retry': kwargs['retry']}


@kopf.on.create('kopfexamples')
def scalar(**kwargs):
    record('scalar', **kwargs)
    return 'text'


@kopf.on.create('kopfexamples')
def nothing(**kwargs):
    record('nothing', **kwargs)


@kopf.on.create('kopfexamples')
def patching(patch, **kwargs):
    record('patching', **kwargs)
    patch.metadata.labels['patched'] = 'yes'
    patch.metadata.annotations['example.com/patched'] = 'yes'
    patch.status['patched'] = {'by': 'merging'}
    patch.fns.append(lambda body: body.setdefault('status', {}).update(made='by a function'))


@kopf.on.update('kopfexamples', field='spec.x')
def failing(patch, **kwargs):
    record('failing', **kwargs)
    patch.status['failed'] = True
    raise kopf.PermanentError('never')


@kopf.on.event('kopfexamples', annotations={'touched': kopf.PRESENT})
def touched(patch, **kwargs):
    patch.status['touched'] = True
