"""
Objects that vanish unseen, while there is no stream: their deletion reaches the event handlers that
they matched.
"""

import asyncio

import pytest
from clusters import build_crd, wait_until
from peerings import build_record

import kopf


@pytest.fixture
def events():
    """The deletions, as pairs: the name of the object, its body."""
    return []


@pytest.fixture
def declare(registry, events):
    """
    Declare an event handler with these filters, and one more that tells when an object is known.
    """

    def declare(**filters):
        @kopf.on.event('kopfexamples', registry=registry, **filters)
        async def event_fn(type, name, body, **_):
            if type == 'DELETED':
                events.append((name, body))

    return declare


@pytest.fixture
def wait_until_known(cluster, registry):
    seen = set()

    @kopf.on.event('kopfexamples', registry=registry)
    async def any_fn(name, spec, type, **_):
        seen.add((name, spec.get('x')))

    async def wait_until_known(*expected):
        await wait_until(lambda: seen >= {*expected})

    return wait_until_known


@pytest.fixture
async def cut(sandbox, cluster):
    """A stream that is cut, and cannot be continued."""

    async def begin():
        fault = sandbox.faults.inject(verb='watch', resource='kopfexamples', cut=True)
        await fault.wait_until_hit()
        return fault

    async def end(fault):
        await sandbox.compact()
        fault.lift()

    return begin, end


@pytest.fixture
async def pause(peering, town):
    """A pause in favour of another operator."""

    async def begin():
        await town.write({'other': build_record(5, lifetime=600)})
        await asyncio.sleep(0.5)

    async def end(_):
        await town.write({'other': None})

    return begin, end


@pytest.fixture
async def redefinition(sandbox, cluster):
    """A resource that is redefined, and is watched in another way since then."""

    async def begin():
        fault = sandbox.faults.inject(verb='list', resource='kopfexamples', code=503)
        await sandbox.apply(build_crd(has_status=True))
        await fault.wait_until_hit()
        return fault

    async def end(fault):
        fault.lift()

    return begin, end


@pytest.fixture(params=['cut', 'pause', 'redefinition'])
def gap(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def vanish(cluster, run_operator, peering, wait_until_known, gap):
    """
    Run an operator, and let objects vanish in a gap: two of those that matched, one that never did.
    """

    async def vanish():
        for name, mark in [
            ('gone', 'yes'),
            ('changed', 'yes'),
            ('former', 'no'),
            ('other', 'no'),
            ('kept', 'yes'),
        ]:
            marks = {'mark': mark}
            await cluster.create(name, spec={'x': 1, **marks}, labels=marks, annotations=marks)
        await run_operator(peering_name='default')
        await wait_until_known(
            ('gone', 1), ('changed', 1), ('former', 1), ('other', 1), ('kept', 1)
        )
        for name, mark in [('changed', 'yes'), ('former', 'no')]:
            await cluster.patch({'spec': {'x': 2, 'mark': mark}}, name)
        await wait_until_known(('changed', 2), ('former', 2))
        begin, end = gap
        token = await begin()
        for name in ('gone', 'changed', 'former', 'other'):
            await cluster.delete(name)
        await end(token)

    return vanish


@pytest.mark.guarantee('FND-012')
@pytest.mark.parametrize(
    'filters',
    [
        pytest.param({'labels': {'mark': 'yes'}}, id='labels'),
        pytest.param({'labels': {'mark': lambda value, **_: value == 'yes'}}, id='labels-callable'),
        pytest.param({'annotations': {'mark': 'yes'}}, id='annotations'),
        pytest.param({'when': lambda spec, **_: spec.get('mark') == 'yes'}, id='when'),
        pytest.param({'when': lambda spec, **_: spec.get('mark') != 'no'}, id='when-not'),
        pytest.param({'field': 'spec.mark', 'value': 'yes'}, id='field'),
        pytest.param(
            {'field': 'spec.mark', 'value': lambda value, **_: value != 'no'}, id='field-callable'
        ),
    ],
)
async def test_filtered_handlers_get_the_deletions_of_objects_that_matched(
    declare, vanish, events, filters
):
    declare(**filters)
    await vanish()
    await wait_until(lambda: len(events) >= 2)
    await asyncio.sleep(60)

    marks = {'mark': 'yes'}
    assert sorted(name for name, _ in events) == ['changed', 'gone']
    assert all(dict(body.meta.labels) == dict(body.meta.annotations) == marks for _, body in events)
    assert all(body.meta.get('creationTimestamp') and body.meta.uid for _, body in events)


@pytest.mark.guarantee('FND-012')
@pytest.mark.parametrize('gap', ['cut'], indirect=True)
async def test_bodies_are_as_they_were_seen_last_if_functions_decide(declare, vanish, events):
    declare(when=lambda body, **_: 'spec' in body)
    await vanish()
    await wait_until(lambda: len(events) == 4)

    assert {name: body.spec for name, body in events} == {
        'gone': {'x': 1, 'mark': 'yes'},
        'changed': {'x': 2, 'mark': 'yes'},
        'former': {'x': 2, 'mark': 'no'},
        'other': {'x': 1, 'mark': 'no'},
    }


@pytest.mark.guarantee('FND-012')
@pytest.mark.parametrize('gap', ['cut'], indirect=True)
@pytest.mark.parametrize(
    'filters',
    [
        pytest.param({'labels': {'mark': kopf.ABSENT}}, id='labels'),
        pytest.param({'field': 'spec.x', 'value': kopf.ABSENT}, id='field'),
        pytest.param({'when': lambda spec, **_: 'x' not in spec}, id='when'),
    ],
)
async def test_filtered_handlers_do_not_get_the_deletions_of_objects_that_never_matched(
    declare, vanish, events, filters
):
    unfiltered = []
    declare(**filters)
    declare(when=lambda type, name, **_: type == 'DELETED' and unfiltered.append(name))
    await vanish()
    await wait_until(lambda: len(unfiltered) == 4)
    await asyncio.sleep(60)

    assert events == []


@pytest.mark.guarantee('FND-012')
@pytest.mark.parametrize('gap', ['cut'], indirect=True)
async def test_unfiltered_handlers_get_the_deletions_with_the_names_only(declare, vanish, events):
    declare()
    await vanish()
    await wait_until(lambda: len(events) == 4)

    assert {key for _, body in events for key in body} == {'apiVersion', 'kind', 'metadata'}
    assert {key for _, body in events for key in body.metadata} == {'name', 'namespace', 'uid'}
