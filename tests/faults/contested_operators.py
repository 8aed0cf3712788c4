"""
Operators whose writes are contested: changed, dropped or refused by the server, or meant for an
object that is gone.

Each scenario has a model of the end: every change is handled, the object is at rest, and nothing
that was meant for one object is ever on another one of the same name.
"""

import asyncio
import contextlib
import json

from chaotic_operators import PLURAL, Case, build_crd, build_object

import kopf

LAST_HANDLED = 'kopf.zalando.org/last-handled-configuration'
CALLS = 6
"""
How many calls of a handler are fine for a change by others, and for each start of the operator.

One is for the change, some are for its retries, for the faults, and for what the server adds in its
own time. Those that run in circles make hundreds, or 11 before they are slowed down.
"""


def build_versions(*names, spec, has_status=True):
    """
    Build a definition with a strict schema of the spec, served in these versions, stored in the
    first one.
    """
    anything = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    schema = {
        'openAPIV3Schema': {'type': 'object', 'properties': {'spec': spec, 'status': anything}}
    }
    subresources = {'subresources': {'status': {}}} if has_status else {}
    crd = build_crd()
    crd['spec']['versions'] = [
        {
            'name': name,
            'served': True,
            'storage': name == names[0],
            'schema': schema,
            **subresources,
        }
        for name in names
    ]
    return crd


def check_marks(body):
    """
    Check that what was written for an object is not on its namesake: handlers put the uid into the
    status.
    """
    mark = (body.get('status') or {}).get('uid')
    uid = body['metadata']['uid']
    assert mark in (None, uid), f'What was meant for {mark} is written to {uid}.'


def check_records(sandbox, names):
    """
    Check that all is handled, for the objects as they are, and that no progress is left; return the
    objects.
    """
    bodies = {body['metadata']['name']: body for body in sandbox.list(PLURAL)}
    assert sorted(bodies) == sorted(names)
    for name, body in bodies.items():
        annotations = body['metadata'].get('annotations', {})
        left = [key for key in annotations if 'kopf.zalando.org/' in key and key != LAST_HANDLED]
        essence = json.loads(annotations.get(LAST_HANDLED, '{}'))
        assert body['status'].get('uid') == body['metadata']['uid'], (
            f'{name} is not handled: {body["status"]}.'
        )
        assert body['status'].get('size') == body['spec']['size'], (
            f'The last change of {name} is not handled.'
        )
        assert left == [], f'Some progress is left on {name}: {left}.'
        assert essence.get('spec') == body['spec'], (
            f'The last handled spec of {name} is {essence.get("spec")}.'
        )
        labels = essence.get('metadata', {}).get('labels', {})
        assert labels == body['metadata'].get('labels', {}), (
            f'The last handled labels of {name} are {labels}.'
        )
    return bodies


ITEM = {
    'type': 'object',
    'properties': {
        'port': {'type': 'integer'},
        'name': {'type': 'string'},
        'protocol': {'type': 'string', 'default': 'TCP'},
    },
}
STRICT = {
    'type': 'object',
    'properties': {
        'size': {'type': 'integer'},
        'items': {'type': 'array', 'items': ITEM},
        'cpu': {'type': 'string'},
        'colour': {'type': 'string', 'enum': ['red', 'blue', 'green']},
        'names': {'type': 'array', 'items': {'type': 'string'}},
        'nested': {'type': 'object', 'properties': {'kept': {'type': 'integer'}}},
    },
}


def mark(uid, spec, patch):
    """Note in the status for which object, and for which change, the handler was called."""
    patch.status['uid'] = uid
    patch.status['size'] = spec['size']


def declare_defaulted(registry):
    """
    Handlers whose changes come back otherwise than they were sent: one function for everything, and
    some more.
    """

    @kopf.on.create(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.update(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.resume(PLURAL, id='provide', registry=registry, backoff=3)
    async def provide(uid, spec, patch, **_):
        mark(uid, spec, patch)
        patch.spec['items'] = [{'port': 80 + number} for number in range(spec['size'])]
        patch.spec['cpu'] = f'{spec["size"]}000m'

    @kopf.on.create(PLURAL, registry=registry, backoff=3)
    @kopf.on.update(PLURAL, registry=registry, field='spec.size', backoff=3)
    async def prune(spec, patch, **_):
        patch.spec['unknown'] = spec['size']
        patch.spec['nested'] = {'kept': spec['size'], 'unknown': spec['size']}

    @kopf.on.create(PLURAL, id='label', registry=registry, backoff=3)
    @kopf.on.update(PLURAL, id='label', registry=registry, backoff=3)
    async def label(spec, patch, **_):
        patch.metadata.labels['owner'] = 'Operator'
        patch.metadata.annotations['example.com/size'] = str(spec['size'])
        return {'labelled': spec['size']}


def declare_functional(registry):
    """
    Handlers that change lists by functions of the freshest body, which are tried again after
    conflicts.
    """

    def put_name(body, name):
        known = body['spec'].setdefault('names', [])
        if [item.lower() for item in known] != [name.lower()]:
            body['spec']['names'] = [name]

    @kopf.on.create(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.update(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.resume(PLURAL, id='provide', registry=registry, backoff=3)
    async def provide(uid, spec, patch, **_):
        await asyncio.sleep(1)
        mark(uid, spec, patch)
        size = spec['size']
        patch.fns.append(lambda body: put_name(body, f'Name-{size}'))

    @kopf.on.create(PLURAL, registry=registry, backoff=3)
    async def add_port(patch, **_):
        patch.fns.append(lambda body: body['spec'].update(items=[{'port': 80}]))
        return 'added'


def change_contested(sandbox):
    for name in ('one', 'two'):
        sandbox.create(build_object(name, size=1, colour='red'))
    sandbox.sleep(20)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 2}})
    sandbox.patch(PLURAL, 'two', {'metadata': {'labels': {'foreign': 'yes'}}})
    sandbox.sleep(0.5)
    sandbox.patch(PLURAL, 'one', {'spec': {'colour': 'blue'}})
    sandbox.sleep(20)
    sandbox.patch(PLURAL, 'two', {'spec': {'size': 3}})


def observe_contested(sandbox):
    check_records(sandbox, ['one', 'two'])


def lower_names(body):
    """Write names in small letters, as DNS does."""
    if 'names' in body.get('spec', {}):
        body['spec']['names'] = [name.lower() for name in body['spec']['names']]


def override_owner(body):
    """Do not let anybody be the owner but the company."""
    body['metadata'].setdefault('labels', {})['owner'] = 'company'


def sort_items(body):
    """Keep lists in the order of the server, and name their items."""
    for item in body.get('spec', {}).get('items', ()):
        item['name'] = f'port-{item["port"]}'
    if 'items' in body.get('spec', {}):
        body['spec']['items'].sort(key=lambda item: -item['port'])


def forget_cpu(body):
    """Drop a field that the schema knows."""
    body.get('spec', {}).pop('cpu', None)


def refuse_owner(body):
    """Refuse the very change that the operator wants to make."""
    if body['metadata'].get('labels', {}).get('owner') == 'Operator':
        raise kopf.AdmissionError('It has no owners.', code=422)


SERVER = (lower_names, override_owner, sort_items, forget_cpu, refuse_owner)


def declare_refused(registry):
    """
    Handlers that want what the server never accepts: a value of a wrong type, an unknown colour, a
    bad label.
    """

    @kopf.on.create(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.update(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.resume(PLURAL, id='provide', registry=registry, backoff=3)
    async def provide(uid, spec, patch, **_):
        mark(uid, spec, patch)
        match spec['size'] % 3:
            case 0:
                patch.spec['cpu'] = {'not': 'a string'}
            case 1:
                patch.spec['colour'] = 'purple'
            case 2:
                patch.metadata.labels['bad'] = 'This is not a label!'

    @kopf.on.create(PLURAL, registry=registry, backoff=3)
    @kopf.on.update(PLURAL, registry=registry, backoff=3)
    async def follow(spec, **_):
        return {'size': spec['size']}


def declare_careless(registry):
    """
    Functions of all kinds that change their arguments in place, and return something or patch
    something.
    """

    @kopf.index(PLURAL, id='by_size', registry=registry)
    async def by_size(name, spec, **_):
        spec['items'].reverse()
        return {spec['size']: name}

    @kopf.on.event(PLURAL, registry=registry)
    async def look(event, spec, **_):
        spec['items'].append('seen')
        event['object']['spec']['seen'] = True

    def is_wanted(spec, body, **_):
        spec['items'].append('filtered')
        return True

    @kopf.on.create(PLURAL, id='sort', registry=registry, backoff=3, when=is_wanted)
    @kopf.on.update(PLURAL, id='sort', registry=registry, backoff=3, when=is_wanted)
    @kopf.on.resume(PLURAL, id='sort', registry=registry, backoff=3)
    async def sort(uid, spec, new, patch, **_):
        mark(uid, spec, patch)
        spec['items'].sort()
        return {'first': min(new['spec']['items'])}

    @kopf.on.create(PLURAL, registry=registry, backoff=3)
    @kopf.on.update(PLURAL, registry=registry, backoff=3)
    async def adopt(spec, old, new, diff, **_):
        kopf.adopt(spec['template'])
        kopf.label(spec['template'], {'app': 'careless'})
        if old is not None:
            old['spec']['items'].clear()
        new['spec']['items'].clear()
        return {'adopted': spec['template']['metadata']['labels']['app']}


def change_carelessly(sandbox):
    for name in ('one', 'two'):
        template = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'child'}}
        sandbox.create(build_object(name, size=1, items=['c', 'a', 'b'], template=template))
    sandbox.sleep(20)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 2}})
    sandbox.sleep(0.5)
    sandbox.patch(PLURAL, 'one', {'spec': {'items': ['z', 'y', 'x']}})
    sandbox.sleep(20)
    sandbox.patch(PLURAL, 'two', {'spec': {'size': 3}})


def observe_carelessness(sandbox):
    bodies = check_records(sandbox, ['one', 'two'])
    stored = [body['spec']['items'] for _, body in sorted(bodies.items())]
    seen = [body['status'].get('sort') for _, body in sorted(bodies.items())]
    templates = [body['spec']['template']['metadata'] for body in bodies.values()]
    assert stored == [['z', 'y', 'x'], ['c', 'a', 'b']], (
        f'What was edited in place is stored: {stored}.'
    )
    assert seen == [{'first': 'x'}, {'first': 'a'}], (
        f'What was edited in place is seen by others: {seen}.'
    )
    assert templates == [{'name': 'child'}] * 2, f'What was edited in place is stored: {templates}.'


def declare_slow(registry):
    """
    Slow handlers with no finalizer, so that objects vanish and come again while the handlers run.
    """

    @kopf.on.create(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.update(PLURAL, id='provide', registry=registry, backoff=3)
    @kopf.on.resume(PLURAL, id='provide', registry=registry, backoff=3)
    async def provide(uid, spec, patch, **_):
        await asyncio.sleep(5)
        mark(uid, spec, patch)
        patch.metadata.labels['size'] = str(spec['size'])

    @kopf.on.create(PLURAL, id='prepare', registry=registry, backoff=3)
    async def prepare(uid, retry, patch, **_):
        await asyncio.sleep(1)
        patch.fns.append(lambda body: body.setdefault('status', {}).update(uid=uid))
        if not retry:
            raise kopf.TemporaryError('not yet', delay=3)
        return {'for': uid}


def recreate(sandbox):
    """Delete and create at once, in the beginning, in the middle and in the end of the handling."""
    for moment, name in enumerate(['one', 'two', 'three']):
        sandbox.create(build_object(name, size=moment + 1))
    for delay in (0.3, 2.5, 4.0, 20.0):
        sandbox.sleep(delay)
        for name in ('one', 'two'):
            sandbox.delete(PLURAL, name)
            sandbox.create(build_object(name, size=10 + len(name)))
    sandbox.sleep(2)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 20}})
    sandbox.sleep(2)
    sandbox.delete(PLURAL, 'two')
    sandbox.create(build_object('two', size=30))


def observe_recreated(sandbox):
    bodies = check_records(sandbox, ['one', 'two', 'three'])
    for body in bodies.values():
        size, result = body['metadata']['labels'].get('size'), body['status'].get('prepare')
        assert size == str(body['spec']['size']), (
            f'The label is of another object or change: {size}.'
        )
        assert result == {'for': body['metadata']['uid']}, (
            f'The result is of another object: {result}.'
        )


running: list[str] = []
overlaps: list[str] = []


@contextlib.contextmanager
def alone(name):
    """Note if anything else is running for the object at the same time."""
    overlaps.extend([name] if name in running else [])
    running.append(name)
    try:
        yield
    finally:
        running.remove(name)


def declare_versions(registry):
    """
    Handlers for two served versions of one resource, which are two resources for the framework.
    """

    def declare(version):
        options = {'registry': registry, 'backoff': 3}

        @kopf.on.create('kopf.dev', version, PLURAL, id=f'provide-{version}', **options)
        @kopf.on.update('kopf.dev', version, PLURAL, id=f'provide-{version}', **options)
        @kopf.on.resume('kopf.dev', version, PLURAL, id=f'provide-{version}', **options)
        async def provide(uid, spec, patch, body, **_):
            assert body['apiVersion'] == f'kopf.dev/{version}'
            with alone(uid):
                await asyncio.sleep(1)
            mark(uid, spec, patch)
            patch.status[version] = spec['size']

        @kopf.on.delete('kopf.dev', version, PLURAL, id=f'remove-{version}', **options)
        async def remove(uid, **_):
            with alone(uid):
                await asyncio.sleep(1)

        @kopf.index('kopf.dev', version, PLURAL, id=f'by_size_{version}', registry=registry)
        async def by_size(name, spec, **_):
            return {spec['size']: name}

    declare('v1')
    declare('v2')


def change_versions(sandbox):
    overlaps.clear()
    sandbox.create(build_object('one', size=1))
    sandbox.create({**build_object('two', size=1), 'apiVersion': 'kopf.dev/v2'})
    sandbox.create(build_object('three', size=1))
    sandbox.sleep(20)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 2}})
    sandbox.sleep(0.5)
    sandbox.patch(PLURAL, 'one', {'spec': {'size': 3}})
    sandbox.sleep(20)
    sandbox.patch(PLURAL, 'two', {'spec': {'size': 4}})
    sandbox.delete(PLURAL, 'three')


def observe_versions(sandbox):
    """
    Check that handlers of two versions take turns, and that one of the versions has handled the
    last change.
    """
    check_records(sandbox, ['one', 'two'])
    assert overlaps == [], f'Handlers of two versions have run at once for {overlaps}.'


def build_case(name, declare, scenario, observe, **options):
    """Build a case with all the checks for objects at rest."""
    return Case(
        name,
        declare,
        scenario,
        observe,
        is_recreatable=True,
        extra={'always': check_marks, 'calls': CALLS, 'rest': 1800.0, **options.pop('extra', {})},
        **options,
    )


CASES = [
    build_case(
        'defaults',
        declare_defaulted,
        change_contested,
        observe_contested,
        manifests=(build_versions('v1', spec=STRICT),),
        extra={'server': SERVER},
        attempts=3,
    ),
    build_case(
        'refusals',
        declare_refused,
        change_contested,
        observe_contested,
        manifests=(build_versions('v1', spec=STRICT),),
        extra={'server': SERVER},
    ),
    build_case(
        'functions',
        declare_functional,
        change_contested,
        observe_contested,
        manifests=(build_versions('v1', spec=STRICT, has_status=False),),
        extra={'server': SERVER},
        attempts=3,
    ),
    build_case('in place', declare_careless, change_carelessly, observe_carelessness),
    build_case('namesakes', declare_slow, recreate, observe_recreated, attempts=2),
    build_case(
        'versions',
        declare_versions,
        change_versions,
        observe_versions,
        manifests=(build_versions('v1', 'v2', spec=STRICT),),
        extra={'ignore': ['status.v1', 'status.v2']},
        attempts=2,
    ),
]
