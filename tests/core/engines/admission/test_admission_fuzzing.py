"""
Whatever is sent to the reviewer is answered: either with a response or with a refusal, and is then
forgotten.
"""

import asyncio
import copy
import gc
import json
import logging
import random
import tracemalloc

import pytest
from admitting import Office, build_object, build_review
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kopf
from kopf._cogs.structs import reviews

SAMPLES = [
    build_review(),
    build_review(build_object('u', metadata={'labels': {'a': 'b'}, 'annotations': {'c': 'd'}})),
    build_review(build_object('u', spec={'field': 2, 'list': [{'x': 1}]}), build_object('u')),
    build_review(None, build_object('u')),
    build_review(version='v1beta1', subResource='status', dryRun=True),
]

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(['metadata', 'name', 'labels', 'uid', 'x', '']), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def list_places(value, path=()):
    """List the paths of all values inside of this one."""
    places = [path] if path else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return places + [place for key, item in items for place in list_places(item, (*path, key))]


def replace(review, path, value):
    """Make the same review with another value at the path, or with nothing there."""
    review = copy.deepcopy(review)
    target = review
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return review


PLACES = [(sample, path) for sample in SAMPLES for path in list_places(sample)]

WEBHOOKS = [None, 'validate', 'mutate', 'deny', 'unknown']


def mutate_sample(chance, junk):
    """Make a review of a sample with one value or two replaced with any of the junk, or removed."""
    review = replace(*chance.choice(PLACES), chance.choice(junk))
    places = list_places(review)
    return (
        replace(review, chance.choice(places), chance.choice(junk))
        if places and chance.random() < 0.3
        else review
    )


@pytest.fixture(scope='module')
def office():
    """A reviewer with handlers that rely on what they get, as handlers usually do."""
    office = Office()

    @office.validate(id='validate', labels={'a': lambda value, **_: value != 'x'})
    async def validate(labels, annotations, spec, diff, warnings, **_):
        warnings.extend(str(item) for item in diff)
        assert not any(key == 'forbidden' for key in [*labels, *annotations, *spec])

    @office.mutate(id='mutate', field='spec')
    async def mutate(patch, spec, memo, **_):
        memo.seen = True
        patch.spec['field'] = None
        patch.spec['added'] = {'x': spec.get('list')}
        patch.fns.append(lambda body: body['spec'].update(made=True))

    @office.validate(
        id='deny', when=lambda userinfo, **_: userinfo['username'] != 'user', subresource='*'
    )
    async def deny(**_):
        raise kopf.AdmissionError('Denied.', code=403)

    return office


async def answer(office, review, webhook):
    try:
        response = await office.reviewer.review(review, webhook=webhook)
    except reviews.ReviewRefused as refusal:
        assert refusal.code in (400, 404)
        assert str(refusal)
    else:
        payload = json.loads(json.dumps(response))['response']
        assert isinstance(payload['uid'], str)
        assert isinstance(payload['allowed'], bool)
        assert ('status' in payload) is not payload['allowed']
        assert ('patch' in payload) is ('patchType' in payload)


@pytest.fixture(scope='module')
def runner():
    """An event loop, with nothing logged: the records would be kept by pytest."""
    logging.disable(logging.CRITICAL)
    with asyncio.Runner() as runner:
        yield runner
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.guarantee('NEW-231')
@settings(
    max_examples=1_000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(seed=st.integers(0, 2**32), junk=st.lists(JUNK, min_size=1, max_size=5))
def test_any_reviews_are_answered(office, runner, seed, junk):
    chance = random.Random(seed)

    async def answer_several():
        for value in junk:
            await answer(office, value, chance.choice(WEBHOOKS))
        for _ in range(10):
            await answer(office, mutate_sample(chance, [*junk, ...]), chance.choice(WEBHOOKS))

    runner.run(answer_several())


@pytest.mark.slow
def test_answered_reviews_are_forgotten(office, runner):
    chance = random.Random(0)
    junk = [None, 0, 'text', [], {}, {'metadata': 'x'}, [[]], True, 1e100, ...]

    async def answer_many(number):
        for _ in range(number):
            await answer(office, mutate_sample(chance, junk), chance.choice(WEBHOOKS))

    def measure():
        gc.collect()
        return tracemalloc.get_traced_memory()[0], len(gc.get_objects())

    tracemalloc.start()
    try:
        runner.run(answer_many(500))
        memory_before, objects_before = measure()
        runner.run(answer_many(3000))
        memory_after, objects_after = measure()
    finally:
        tracemalloc.stop()

    assert memory_after - memory_before < 100_000  # 33 bytes per review
    assert objects_after - objects_before < 500
