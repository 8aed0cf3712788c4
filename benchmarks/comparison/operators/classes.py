"""The ids of handlers in classes and functions, of wrapped functions, and of namesakes."""

import functools

from recording import record

import kopf


class Static:
    @kopf.on.create('kopfexamples')
    def method(**kwargs):
        record('Static.method', **kwargs)
        return {'by': 'Static.method'}

    @staticmethod
    @kopf.on.create('kopfexamples')
    def static(**kwargs):
        record('Static.static', **kwargs)
        return {'by': 'Static.static'}

    class Inner:
        @staticmethod
        @kopf.on.create('kopfexamples')
        def method(**kwargs):
            record('Static.Inner.method', **kwargs)
            return {'by': 'Static.Inner.method'}


class Stateful:
    def __init__(self, name):
        self.name = name

    def method(self, **kwargs):
        record(f'Stateful.method of {self.name}', **kwargs)
        return {'by': self.name}

    @classmethod
    def of_class(cls, **kwargs):
        record('Stateful.of_class', **kwargs)
        return {'by': cls.__name__}


kopf.on.create('kopfexamples')(Stateful('one').method)
kopf.on.update('kopfexamples', field='spec.x')(Stateful('two').method)
kopf.on.create('kopfexamples')(Stateful.of_class)


def declare(name):
    @kopf.on.create('kopfexamples')
    @kopf.on.update('kopfexamples')
    def nested(**kwargs):
        record(f'nested of {name}', **kwargs)

        @kopf.subhandler()
        def child(**kwargs):
            record(f'child of {name}', **kwargs)
            if kwargs['retry'] < 1:
                raise kopf.TemporaryError('again', delay=1)

            @kopf.subhandler()
            def grandchild(**kwargs):
                record(f'grandchild of {name}', **kwargs)
                return {'by': name}

        return {'by': name}


declare('declare')


def wrap(fn):
    @functools.wraps(fn)
    def wrapper(**kwargs):
        return fn(**kwargs)

    return wrapper


@kopf.on.create('kopfexamples')
@wrap
def wrapped(**kwargs):
    record('wrapped', **kwargs)
    return {'by': 'wrapped'}


def partial(origin, **kwargs):
    record(f'partial of {origin}', **kwargs)
    return {'by': origin}


kopf.on.create('kopfexamples')(functools.partial(partial, 'positional'))


@kopf.on.create('kopfexamples')
async def gathering(**kwargs):
    record('gathering', **kwargs)

    def first(**kwargs):
        record('first', **kwargs)
        return {'by': 'first'}

    await kopf.execute(fns=[first, functools.partial(partial, 'given')])
