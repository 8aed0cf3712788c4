"""
The matrix of faults: every operation in every fault. After the fault is over, it goes on, and no
change is lost.

What became of each operation, is in the table, and is printed when the tests end. In streams:

* ``waited``, ``read``: it took longer or more memory, but nothing has failed;
* ``retried``: the same was asked for until it was given; ``continued``: the same, from the last version;
* ``replaced``: the silent connection was abandoned; ``relisted``: everything was listed and compared, also if streams
  were accepted, but nothing came in them for minutes;
* ``logged in``: new credentials were brought, and the same was asked for with them.

Other requests can be also ``answered``, when the refusal is a result that the callers expect, and
``raised``, when it is not for the request to repeat: it is the callers who will come again.

The columns of namespaces and of resources in the printed table are of the tests of their
observation: all that became of them in several tests. There, what is forbidden from the beginning
is ``refused``: the operator does without it, and asks again later. The scans of the cluster are
``rescanned`` if it is not one request that is repeated.
"""

import asyncio
import dataclasses
import logging
import typing

import meddling
import pytest

from kopf._cogs.clients import discovery, errors, requests
from kopf._cogs.clients.patching import object_requests, targets
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.structs import references

CONFIGS = references.Resource('', 'v1', 'configmaps', kind='ConfigMap', namespaced=True)
TARGET = targets.Target(CONFIGS, 'default', 'same')

OPERATIONS = ['list', 'relist', 'watch', 'watch anew', 'patch', 'discovery']
EXPECTED = {
    '400': ['retried', 'retried', 'relisted', 'relisted', 'raised', 'raised'],
    '401': ['logged in', 'logged in', 'logged in', 'relisted', 'logged in', 'logged in'],
    '403': ['retried', 'retried', 'continued', 'relisted', 'retried', 'raised'],
    '404': ['retried', 'retried', 'continued', 'relisted', 'answered', 'answered'],
    '409': ['retried', 'retried', 'continued', 'relisted', 'answered', 'raised'],
    '410': ['retried', 'retried', 'relisted', 'relisted', 'raised', 'raised'],
    '422': ['retried', 'retried', 'relisted', 'relisted', 'answered', 'raised'],
    '429': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    '429 in 5 s': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    '500': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    '503': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    '503 in 5 s': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    '504': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    'refused': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    'disconnected': ['retried', 'retried', 'continued', 'relisted', 'retried', 'retried'],
    'reset': ['retried', 'retried', 'relisted', 'relisted', 'retried', 'retried'],
    'black hole': ['retried', 'retried', 'replaced', 'relisted', 'retried', 'retried'],
    'slow': ['waited', 'waited', 'waited', 'relisted', 'waited', 'waited'],
    'malformed': ['retried', 'retried', 'relisted', 'relisted', 'retried', 'retried'],
    'empty': ['retried', 'retried', 'relisted', 'relisted', 'retried', 'retried'],
    'huge line': ['read', 'read', 'read', 'relisted', 'read', 'read'],
}

CELLS = [
    pytest.param(operation, fault, outcome, id=f'{operation}-{fault}'.replace(' ', '-'))
    for fault, row in EXPECTED.items()
    for operation, outcome in zip(OPERATIONS, row, strict=True)
]


@dataclasses.dataclass(frozen=True)
class Bench:
    """One cell of the matrix: the fault, and everything to try an operation with."""

    fault: str
    sandbox: typing.Any
    meddler: typing.Any
    context: requests.Context
    read: typing.Callable
    check: typing.Callable
    change_everything: typing.Callable
    caplog: pytest.LogCaptureFixture

    def troubled(self, **where):
        """
        Keep the fault for the block, and until the requests in question have met it at least once.
        """
        return meddling.keep_fault(
            self.fault,
            self.sandbox,
            self.meddler,
            downtime=30,
            where=where,
            is_meant=lambda http: is_meant(http, **where),
        )

    async def name_outcome(self, usual, *, is_failed):
        _, info = await self.context.vault.select()
        if info.priority:  # of the new credentials
            return 'logged in'
        return usual if is_failed else 'waited' if self.fault == 'slow' else 'read'


def is_meant(http, verb='', path=''):
    """
    Tell if the meddler's request is of this verb (watching and listing differ only in the query),
    or so.
    """
    verbs = {'PATCH': 'patch', 'GET': 'watch' if 'watch' in http.query else 'list'}
    return http.path in ('/api', '/apis') if path else verbs[http.method] == verb


async def try_list(bench):
    async with bench.troubled(verb='list'):
        reading = await bench.read(bench.context)
        await asyncio.sleep(20)
        await bench.change_everything()
        await asyncio.sleep(600)
    await reading.wait_until_connected()
    await bench.check(reading)
    initial = reading.events[: reading.events.index(stream_states.Marker.LISTED)]
    assert [type for type, *_ in initial] == [None] * 4
    assert reading.state.relists == 0
    return await bench.name_outcome('retried', is_failed=reading.state.error is not None)


async def try_stream(bench, verb, is_compacted=False):
    reading = await bench.read(bench.context)
    await reading.wait_until_connected()
    bench.sandbox.requests.clear()
    async with bench.troubled(verb=verb):
        if bench.fault != 'black hole' or verb == 'list':  # open streams fall into it by themselves
            bench.sandbox.faults.end_streams(
                410 if verb == 'list' else 500, message=meddling.TRIGGER
            )
        await asyncio.sleep(20)
        await bench.change_everything()
        if is_compacted:
            await bench.sandbox.compact()
        await asyncio.sleep(600)
    await bench.check(reading)
    if verb == 'watch' and any(
        'resourceVersionMatch' not in asked.query
        for asked in bench.sandbox.requests.select(verb='list')
    ):
        return 'relisted'
    if verb == 'watch' and isinstance(reading.state.error, errors.APITimeoutError):
        return 'replaced'
    is_failed = getattr(reading.state.error, 'message', '') != meddling.TRIGGER
    return await bench.name_outcome(
        'retried' if verb == 'list' else 'continued', is_failed=is_failed
    )


async def try_patch(bench):
    async def apply():
        return await object_requests.patch_object(
            TARGET, merge={'data': {'x': '1'}}, context=bench.context
        )

    outcome, result = await try_call(bench, apply, verb='patch')
    if result is None or result.refused is not None:
        outcome = 'answered'
        result = await apply()
    assert result.body['data'] == {'x': '1'}
    assert (await bench.sandbox.get('configmaps', 'same'))['data'] == {'x': '1'}
    return outcome


async def try_discovery(bench):
    async def discover():
        return await discovery.read_catalog(context=bench.context, groups=['', 'apps'])

    outcome, result = await try_call(bench, discover, path='/api*')
    if not result.resources:
        outcome = 'answered'
        result = await discover()
    assert {'configmaps', 'deployments'} <= {resource.plural for resource in result.resources}
    assert not result.doubtful
    return outcome


async def try_call(bench, call, **where):
    """
    Make a call in trouble, and once more if it raises when the trouble is over; return also what it
    returns.
    """
    async with bench.troubled(**where):
        calling = asyncio.create_task(call(), name='calling')
        await asyncio.wait([calling], timeout=400 if bench.fault == 'black hole' else 20)
    try:
        result = await calling
    except errors.APIError:
        return 'raised', await call()
    return await bench.name_outcome(
        'retried', is_failed='will be repeated' in bench.caplog.text
    ), result


TRIES = {
    'list': try_list,
    'relist': lambda bench: try_stream(bench, 'list'),
    'watch': lambda bench: try_stream(bench, 'watch'),
    'watch anew': lambda bench: try_stream(bench, 'watch', is_compacted=True),
    'patch': try_patch,
    'discovery': try_discovery,
}


@pytest.fixture
async def make_bench(request, sandbox, meddler, renew):
    """
    Prepare the cell of this fault; the requests go through the meddler only if it is the one who
    does harm.
    """

    async def make_bench(fault):
        server = meddler if meddling.is_meddled(fault) else sandbox
        context = await renew(server.url, sandbox.token)
        tools = {
            name: request.getfixturevalue(name)
            for name in ('read', 'check', 'change_everything', 'caplog')
        }
        # Retries in outages are there.
        tools['caplog'].set_level(logging.DEBUG, context.logger.name)
        return Bench(fault, sandbox, meddler, context, **tools)

    return make_bench


@pytest.mark.guarantee(
    'NEW-127', 'NEW-144', 'NEW-146', 'NEW-149', 'NEW-154', 'AUT-028', 'AUT-029', 'CFG-027'
)
@pytest.mark.parametrize('operation, fault, expected', CELLS)
@pytest.mark.usefixtures('virtual_time', 'read', 'check', 'change_everything')
async def test_nothing_is_lost_in_faults(make_bench, outcomes, operation, fault, expected):
    bench = await make_bench(fault)

    outcome = await TRIES[operation](bench)

    outcomes.record(fault, operation, outcome)
    assert outcome == expected
