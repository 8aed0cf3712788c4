"""
Different functions with one id or one name: each of them is called for its own causes and changes.
"""

import asyncio
import functools

import pytest

import kopf


@pytest.mark.guarantee('FND-001', 'FND-021')
async def test_changes_of_one_function_are_told_to_another_of_the_same_name(
    cluster, registry, run_operator
):
    @kopf.on.create('kopfexamples', id='fn', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        patch.spec['y'] = 3

    @kopf.on.update('kopfexamples', id='fn', registry=registry)
    async def update_fn(diff, **_):
        calls.append(tuple(diff))

    calls = []
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(60)

    assert calls == ['create', (('add', ('spec', 'y'), None, 3),)]


@pytest.mark.guarantee('FND-021')
async def test_edits_in_mid_creation_are_told_to_another_function_of_the_same_name(
    cluster, registry, run_operator
):
    @kopf.on.create('kopfexamples', id='first_fn', registry=registry)
    async def first_fn(**_):
        calls.append('first')

    @kopf.on.create('kopfexamples', id='fn', registry=registry)
    async def create_fn(retry, **_):
        calls.append('create')
        if not retry:
            raise kopf.TemporaryError('not yet', delay=20)

    @kopf.on.update('kopfexamples', id='fn', registry=registry)
    async def update_fn(diff, **_):
        calls.append(tuple(diff))

    calls = []
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(5)
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(100)

    assert calls == ['first', 'create', 'create', (('change', ('spec', 'x'), 1, 2),)]


class Array:
    """A value that cannot be compared, like those of some libraries."""

    def __eq__(self, other):
        raise ValueError('The truth value of an array is ambiguous.')

    __hash__ = None


@pytest.mark.guarantee('FND-021')
@pytest.mark.parametrize(
    'values', [[1, True, 1.0], [Array(), Array(), Array()]], ids=['equal', 'incomparable']
)
async def test_partials_of_other_arguments_are_other_functions(
    cluster, registry, run_operator, values
):
    async def fn(value, **_):
        calls.append(value)

    calls = []
    for value in values:
        kopf.on.create('kopfexamples', id='fn', registry=registry)(functools.partial(fn, value))
    await run_operator()
    await cluster.create()
    await asyncio.sleep(5)

    assert list(map(id, calls)) == list(map(id, values))


@pytest.mark.guarantee('FND-021')
async def test_functions_of_one_name_are_executed_over_several_calls(
    cluster, registry, run_operator
):
    async def handle(item, retry, **_):
        calls.append(f'{item} {retry}')
        if item == 'b' and not retry:
            raise kopf.TemporaryError('not yet', delay=10)

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        for item in 'abc':
            await kopf.execute(fns=[functools.partial(handle, item)])

    calls = []
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert calls == ['a 0', 'b 0', 'b 1', 'c 0']
