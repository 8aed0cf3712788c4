"""
The examples on a real cluster: each is run as users run it, by ``kopf run`` in its own process.

What exactly they do is tested with the sandbox; here, that they do it where nothing is ours but the
operator.
"""

import asyncio
import contextlib
import os
import pathlib
import re
import signal
import sys

import pytest
import yaml
from e2e_worlds import PATIENCE

import kopf

EXAMPLES = pathlib.Path(kopf.__file__).parent.parent / 'examples'
NAME = 'kopf-example-1'

pytestmark = pytest.mark.controlplane


@pytest.fixture
def server(cluster_of_session):
    return cluster_of_session


class Example:
    """A running example, and all that it has said."""

    def __init__(self, process):
        self._process = process
        self.said = ''

    async def wait_until_says(self, *texts):
        """Read what it says, until it has said all of these since the start."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not all(text in self.said for text in texts):
                    line = await self._process.stdout.readline()
                    assert line, self.said
                    self.said += line.decode()
        except TimeoutError:
            raise AssertionError(self.said) from None

    async def stop(self):
        """Interrupt it, as by Ctrl-C; check that it ends properly."""
        self._process.send_signal(signal.SIGINT)
        await self.wait_until_ends()

    async def wait_until_ends(self):
        async with asyncio.timeout(PATIENCE):
            rest, _ = await self._process.communicate()
        self.said += rest.decode()
        assert self._process.returncode == 0, self.said
        assert 'Traceback' not in self.said


@pytest.fixture
async def start(world, kubeconfig, tmp_path):
    """Start an example in the namespace of the test; end it with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(name, *command, **env):
            path = str(EXAMPLES / name / 'example.py')
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                '-B',
                *(command or ('-m', 'kopf', 'run', '-n', world.namespace)),
                path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=tmp_path,
                env={**os.environ, 'PYTHONUNBUFFERED': '1', **env},
            )
            stack.push_async_callback(end, process)
            return Example(process)

        yield start


async def end(process):
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


@pytest.fixture
async def make(world):
    """Make the first object of a file."""

    async def make(path='obj.yaml'):
        body = next(yaml.safe_load_all((EXAMPLES / path).read_text()))
        plural = {'Pod': 'pods', 'KopfExample': 'kopfexamples'}[body['kind']]
        if plural == 'pods':
            await world.api.wait_until_served(world.path('serviceaccounts', 'default'))
        return await world.api.ask('POST', world.path(plural), body)

    return make


@pytest.mark.parametrize(
    'name, texts',
    [
        pytest.param(
            '01-minimal',
            [f'Hello, {NAME}! You are here for 1m.', "'create_fn' succeeded"],
            id='minimal',
        ),
        pytest.param(
            '07-subhandlers',
            ['READY item1', 'READY item2', "'create_fn' succeeded"],
            id='subhandlers',
        ),
        pytest.param(
            '11-filtering-handlers',
            ['MATCHED by the value of the field', "'with_negated_function' succeeded"],
            id='filters',
        ),
        pytest.param(
            '06-peering', [f'CREATED {NAME}: seen by', "'create_fn' succeeded"], id='peering'
        ),
        pytest.param(
            '14-daemons', ["the field is 'value'.", f'BEAT of the thread of {NAME}'], id='daemons'
        ),
        pytest.param(
            '15-timers', [f'TICK 3 of {NAME}', f'QUIET {NAME}', f'DONE for {NAME}'], id='timers'
        ),
        pytest.param('16-indexing', [f'COUNT of {NAME}: 0 pods'], id='indexing'),
        pytest.param('19-reconcile', [f'RECONCILED {NAME} for '], id='reconciling'),
    ],
)
async def test_operators_react_to_creations(start, make, name, texts):
    example = await start(name)
    await make()

    await example.wait_until_says(*texts)

    await example.stop()


async def test_children_live_and_die_with_their_parents(world, start, make):
    await world.api.wait_until_served(world.path('serviceaccounts', 'default'))
    example = await start('02-children')
    parent = await make()
    await example.wait_until_says("'create_pod' succeeded")
    (pod,) = await world.find_all('pods')

    await world.delete(NAME)
    await world.wait_until_gone(pod['metadata']['name'], 'pods')

    assert [owner['uid'] for owner in pod['metadata']['ownerReferences']] == [
        parent['metadata']['uid']
    ]
    await example.stop()


async def test_exceptions_are_retried_or_not(start, make):
    example = await start('03-exceptions')
    await make()

    await example.wait_until_says(
        "'succeeds_at_last' succeeded",
        "'recovers_from_anything' succeeded",
        "'knows_that_it_is_hopeless' failed permanently: There is no way to do this.",
    )

    said, example.said = example.said, ''
    await example.stop()
    assert said.count("'succeeds_at_last' failed") == 2


async def test_all_features_work_together(world, start, make):
    example = await start('99-all-at-once')
    await make()
    await example.wait_until_says(
        'RECOVERED',
        'PREPARED item1',
        'PREPARED item2',
        'DAEMON is here.',
        'TIMER was here.',
        "'recover' succeeded",
    )

    await world.delete(NAME)
    await example.wait_until_says('DAEMON is gone.', 'DELETED')
    await world.wait_until_gone(NAME)


async def test_events_are_posted_about_the_object(world, start, make):
    example = await start('04-events')
    body = await make()
    await example.wait_until_says("'create_fn' succeeded")
    await example.stop()

    events = [
        event for event in await world.find_all('events') if event['reportingComponent'] == 'kopf'
    ]
    assert {event['involvedObject']['uid'] for event in events} == {body['metadata']['uid']}
    assert {(event['type'], event['reason']) for event in events} >= {
        ('Normal', 'Started'),
        ('Warning', 'Suspicious'),
        ('Custom', 'Noticed'),
        ('Error', 'Failed'),
    }


async def test_handlers_are_called_for_their_causes(world, start, make):
    example = await start('05-handlers')
    await make()
    await example.wait_until_says(
        f'CREATED 1st {NAME}', f'CREATED 2nd {NAME}', "'field_fn/spec.field' succeeded"
    )
    await world.patch({'spec': {'field': 'another'}}, NAME)
    await example.wait_until_says(
        f"UPDATED {NAME}: change spec.field from 'value' to 'another'", "'update_fn' succeeded"
    )
    await world.delete(NAME)
    await example.wait_until_says(f'DELETED 1st {NAME}', f'DELETED 2nd {NAME}')

    await world.wait_until_gone(NAME)
    await example.stop()


async def test_raw_events_are_seen_and_leave_no_traces(world, start, make):
    before = await make()
    example = await start('08-events')
    await example.wait_until_says(f'EVENT EXISTING {NAME}')

    assert await world.find(NAME) == before
    await world.delete(NAME)
    await example.wait_until_says(f'EVENT DELETED {NAME}')
    await example.stop()


async def test_pods_are_deleted_when_their_time_is_over(world, start, make):
    await make('10-builtins/pod.yaml')
    example = await start('10-builtins', POD_LIFETIME='0.5')

    await example.wait_until_says("Handler 'limit_lifetime' succeeded")

    await world.wait_until_gone('short-lived', 'pods')
    await example.stop()


async def test_operator_runs_beside_an_application(own_server, start):
    example = await start('12-embedded', '-X', 'utf8')
    await example.wait_until_ends()

    assert re.findall('^STARTED|^NEWS: .+|^STOPPED', example.said, re.MULTILINE) == [
        'STARTED',
        *(
            f'NEWS: kopf-example-{number} is {what}'
            for number in (1, 2, 3)
            for what in ('created', 'deleted')
        ),
        'STOPPED',
    ]


async def test_hooks_are_called_at_the_beginning_and_at_the_end(start, make):
    await make('13-hooks/pod.yaml')
    example = await start('13-hooks')
    await example.wait_until_says('WATCHING over watched-over')

    await example.stop()

    assert re.findall('Starting|WATCHING|Stopping 1 tasks|LEFT', example.said) == [
        'Starting',
        'WATCHING',
        'Stopping 1 tasks',
        'LEFT',
    ]
