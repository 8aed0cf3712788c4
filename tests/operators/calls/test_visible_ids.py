"""
The ids of handlers as users see them: in the progress and the results on objects, in probes,
indices and logs.
"""

import asyncio
import functools
import json
import logging

import aiohttp
import pytest
from clusters import get_progress, wait_until
from operator_endpoints import Site
from stored_records import annotate, delayed, is_clean, succeeded, waiting

import kopf
from kopf._core.intents import naming


def decorate(fn):
    @functools.wraps(fn)
    async def wrapper(**kwargs):
        return await fn(**kwargs)

    return wrapper


def rename(fn):
    fn.__name__ = 'renamed'
    return fn


def do_nothing(**_):
    pass


async def succeed(*, value=1, **_):
    return value


@decorate
async def decorated(**_):
    return 'decorated'


@rename
async def renaming(**_):
    return 'renaming'


class Operator:
    async def method(self, **_):
        return 'method'

    @staticmethod
    async def static(**_):
        return 'static'

    async def parent(self, **_):
        @kopf.subhandler()
        async def child(**_):
            return 'child'

        kopf.register(self.method)
        kopf.register(functools.partial(succeed, value='partial'))


def build_local():
    async def local(**_):
        return 'local'

    return local


async def create_fn(**_):
    @kopf.subhandler()
    async def sub(**_):
        @kopf.subhandler()
        async def subsub(**_):
            return 'subsub'

        return 'sub'


LAMBDA = lambda **_: 'lambda'  # noqa: E731
LAMBDA_ID = f'lambda:{__file__}:{LAMBDA.__code__.co_firstlineno}'
NAMED = {
    'Operator.method': Operator().method,
    'Operator.static': Operator.static,
    'build_local.<locals>.local': build_local(),
    'succeed': functools.partial(succeed, value='partial'),
    'decorated': decorated,
    'renaming': renaming,
    LAMBDA_ID: LAMBDA,
}
RESULTS = {
    'Operator.method': 'method',
    'Operator.static': 'static',
    'build_local.<locals>.local': 'local',
    'succeed': 'partial',
    'decorated': 'decorated',
    'renaming': 'renaming',
    LAMBDA_ID: 'lambda',
}


@pytest.mark.guarantee('FND-020')
async def test_results_are_under_the_qualified_names(cluster, registry, run_operator, logs):
    for fn in NAMED.values():
        kopf.on.create('kopfexamples', registry=registry)(fn)
    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()

    assert body['status'] == RESULTS
    for id in NAMED:
        assert any(f"'{id}' succeeded." in line for line in logs(logging.INFO))


@pytest.mark.guarantee('FND-020')
async def test_subhandlers_are_under_the_qualified_names(cluster, registry, run_operator):
    kopf.on.create('kopfexamples', registry=registry)(create_fn)
    kopf.on.create('kopfexamples', registry=registry)(Operator().parent)
    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()

    sub = 'create_fn/create_fn.<locals>.sub'
    assert body['status'] == {
        sub: 'sub',
        f'{sub}/create_fn.<locals>.sub.<locals>.subsub': 'subsub',
        'Operator.parent/Operator.parent.<locals>.child': 'child',
        'Operator.parent/Operator.method': 'method',
        'Operator.parent/succeed': 'partial',
    }


@pytest.mark.guarantee('FND-020')
async def test_every_name_can_be_stored_while_it_waits(cluster, registry, run_operator):
    """
    Those names that are not possible as names of annotations are replaced, and each is continued as
    itself.
    """
    for fn in NAMED.values():
        kopf.on.create('kopfexamples', registry=registry)(_failing_once(fn))
    operator = await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: len(get_progress(body)) >= len(NAMED))
    assert {
        'kopf.zalando.org/Operator.method',
        'kopf.zalando.org/build_local._locals_.local',
        'kopf.zalando.org/decorated',
    } <= get_progress(body).keys()
    assert not body.get('status')

    await operator.stop()
    await run_operator()
    body = await cluster.wait_until_handled()

    assert body['status'] == RESULTS


def _failing_once(fn):
    @functools.wraps(fn)
    async def wrapper(retry, **kwargs):
        if not retry:
            raise kopf.TemporaryError('not now', delay=10)
        result = fn(retry=retry, **kwargs)
        return await result if asyncio.iscoroutine(result) else result

    if isinstance(fn, functools.partial):
        wrapper.__wrapped__ = fn
    return wrapper


class Daily:
    async def create(self, retry, param, **_):
        param.append(('create', retry))


async def parent(param, **_):
    @kopf.subhandler()
    async def done(**_):
        param.append('done')

    @kopf.subhandler()
    async def later(retry, **_):
        param.append(('later', retry))


@pytest.mark.guarantee('FND-020')
async def test_progress_of_the_reference_is_continued(cluster, registry, run_operator):
    calls = []
    for fn in (Daily().create, parent):
        kopf.on.create('kopfexamples', param=calls, registry=registry)(fn)
    children = ['parent/parent.<locals>.done', 'parent/parent.<locals>.later']
    await cluster.create(
        annotations=annotate(
            **{
                'Daily.create': delayed(),
                'parent': waiting(subrefs=children),
                'parent.parent._locals_.done': succeeded(),
                'parent.parent._locals_.later': delayed(),
            }
        )
    )
    await run_operator()
    await asyncio.sleep(90)
    assert calls == []
    await cluster.wait(is_clean)

    assert sorted(calls) == [('create', 1), ('later', 1)]


@pytest.mark.guarantee('FND-020')
async def test_indices_are_passed_under_the_qualified_names(cluster, registry, run_operator):
    seen = []
    for fn in NAMED.values():
        kopf.index('kopfexamples', registry=registry)(fn)

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**kwargs):
        seen.append({id: list(kwargs[id][None]) for id in NAMED})

    await cluster.create()
    await run_operator()
    await wait_until(lambda: seen)

    assert seen == [{id: [value] for id, value in RESULTS.items()}]


@pytest.mark.guarantee('FND-020')
async def test_probes_are_under_the_qualified_names(cluster, registry, run_operator):
    kopf.on.event('kopfexamples', registry=registry)(do_nothing)
    for fn in NAMED.values():
        kopf.on.probe(registry=registry)(fn)
    async with aiohttp.ClientSession() as session:
        site = Site(session)
        await run_operator(liveness_endpoint=site.url)

        assert json.loads(await site.wait_until('/healthz', 200)) == RESULTS


def declare_namesakes(decorator, calls, *, errors=()):
    """Declare three functions of one name, the second one of which can fail at first."""
    for number in range(1, 4):

        async def fn(retry, number=number, **_):
            calls.append((number, retry))
            if retry < len(errors) and number == 2:
                raise errors[retry]
            return number

        decorator(id='fn')(fn)


@pytest.mark.guarantee('FND-021')
async def test_functions_of_one_id_have_progress_and_results_of_their_own(
    cluster, registry, run_operator, logs
):
    calls = []
    decorator = functools.partial(kopf.on.create, 'kopfexamples', registry=registry)
    declare_namesakes(decorator, calls, errors=[kopf.TemporaryError('later', delay=100)])
    decorator(id='other')(do_nothing)
    operator = await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: body.get('status') == {'fn': 1, 'fn-3': 3})
    assert 'kopf.zalando.org/fn-2' in get_progress(body)

    await operator.stop()
    await run_operator()
    body = await cluster.wait_until_handled()

    assert calls == [(1, 0), (2, 0), (3, 0), (2, 1)]
    assert body['status'] == {'fn': 1, 'fn-2': 2, 'fn-3': 3}
    [warning] = {line for line in logs(logging.WARNING) if 'Several functions' in line}
    line = declare_namesakes.__code__.co_firstlineno + 4
    assert warning == (
        f"Several functions have the id 'fn' for the same resource: 'fn' at {__file__}:{line}, "
        f"'fn-2' at {__file__}:{line}, 'fn-3' at {__file__}:{line}. "
        f'All of them are called. Rename them, or give them different ids with id=.'
    )


@pytest.mark.guarantee('FND-021')
async def test_the_warning_is_once_for_all_namespaces(
    cluster, sandbox, registry, run_operator, logs
):
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'another'}})
    declare_namesakes(functools.partial(kopf.on.create, 'kopfexamples', registry=registry), [])
    declare_namesakes(functools.partial(kopf.on.event, 'kopfexamples', registry=registry), [])
    await run_operator(namespaces=['default', 'another'])
    await cluster.wait_until_watched(times=2)

    assert len([line for line in logs(logging.WARNING) if 'Several functions' in line]) == 1


@pytest.mark.guarantee('FND-021')
@pytest.mark.parametrize(
    'first, second', [('create', 'update'), ('update', 'delete'), ('delete', 'resume')]
)
async def test_functions_of_one_id_for_different_causes_are_not_warned_of(
    cluster, registry, run_operator, logs, first, second
):
    getattr(kopf.on, first)('kopfexamples', id='fn', registry=registry)(do_nothing)
    getattr(kopf.on, second)('kopfexamples', id='fn', registry=registry)(succeed)
    await run_operator()
    await cluster.wait_until_watched()

    assert not [line for line in logs(logging.WARNING) if 'Several functions' in line]


@pytest.mark.guarantee('FND-021')
async def test_timers_of_one_id_have_results_of_their_own(cluster, registry, run_operator):
    declare_namesakes(
        functools.partial(kopf.timer, 'kopfexamples', interval=100, registry=registry), []
    )
    await run_operator()
    await cluster.create()

    await cluster.wait(lambda body: (body.get('status') or {}) == {'fn': 1, 'fn-2': 2, 'fn-3': 3})


@pytest.mark.guarantee('FND-021')
async def test_activities_of_one_id_are_called_in_the_order_of_declaration(
    cluster, registry, run_operator
):
    calls = []
    kopf.on.event('kopfexamples', registry=registry)(do_nothing)
    for position, id in enumerate(['configure', 'other', 'configure', 'other', 'configure']):

        def fn(position=position, **_):
            calls.append(position)

        kopf.on.startup(id=id, registry=registry)(fn)
    await run_operator()

    assert calls == [0, 1, 2, 3, 4]


@pytest.mark.guarantee('FND-020')
@pytest.mark.parametrize('name', sorted(naming.RESERVED))
def test_names_of_our_own_records_are_refused(registry, name):
    with pytest.raises(ValueError, match=f"The id '{name}' is taken") as caught:
        kopf.on.create('kopfexamples', id=name, registry=registry)(lambda **_: None)

    assert 'Choose another id' in str(caught.value)
