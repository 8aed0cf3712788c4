"""
Decisions: what is to be done for an object, and what follows from the answers of the server. No I/O
is involved.
"""

import datetime
import json
import types

import pytest

import kopf
from kopf._cogs.clients.patching import application
from kopf._cogs.structs import references
from kopf._core.actions import outcomes, progression
from kopf._core.reactor import cycles, decisions, inventory, recording, sites, views

FINALIZER = 'kopf.zalando.org/KopfFinalizerMarker'
PREFIX = 'kopf.zalando.org/'
NOW = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
RESOURCE = references.Resource('kopf.dev', 'v1', 'kopfexamples', namespaced=True)
HOLDING = application.Holding

INITIAL = inventory.INITIAL
DELETED = {'deletionTimestamp': '2026-11-18T00:00:00Z', 'finalizers': [FINALIZER]}
HELD = {'finalizers': [FINALIZER]}


def seal(x):
    return cycles.seal({'spec': {'x': x}})


def build_body(x=1, *, handled=None, progress=None, version='1', **metadata):
    """Build an object with such a spec, such a last handled one, and such records of handlers."""
    annotations = {PREFIX + key: json.dumps(record) for key, record in (progress or {}).items()}
    if handled is not None:
        annotations[f'{PREFIX}last-handled-configuration'] = json.dumps({'spec': {'x': handled}})
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'spec': {'x': x},
        'metadata': {
            'name': 'obj',
            'namespace': 'default',
            'uid': 'uid',
            'resourceVersion': version,
            **({'annotations': annotations} if annotations else {}),
            **metadata,
        },
    }


def declare(registry, *names):
    """
    Declare handlers by their names, e.g. ``create``, ``update/other``, ``delete``; with the same
    ids by default.
    """
    for name in names:
        kind, _, id = name.partition('/')
        decorator = getattr(kopf.on, kind)
        decorator('kopfexamples', id=id or kind, registry=registry)(lambda **_: None)


@pytest.fixture
def settings():
    return kopf.OperatorSettings()


@pytest.fixture
def look(settings):
    """Take a view of an object with such handlers declared."""

    def look(body, *names, is_alive=False, **kwargs):
        registry = kopf.OperatorRegistry()
        declare(registry, *names)
        site = types.SimpleNamespace(
            registry=registry,
            settings=settings,
            indices={},
            now=lambda: NOW,
            memories=inventory.Memories(),
        )
        served = sites.Served(site, RESOURCE, lambda resource: None)
        daemons = types.SimpleNamespace(is_alive=is_alive)
        return views.View(served, body, inventory.Memory(kopf.Memo(), daemons=daemons, **kwargs))

    return look


def show(plan):
    """Describe a plan in a few words."""
    match plan:
        case decisions.Run():
            ids = [handler.id for handler in plan.selected if plan.state.is_due(handler.id, NOW)]
            return f'{plan.cause.reason}: {", ".join(ids) or "nobody"}'
        case decisions.Record():
            return f'record {plan.handled.value["spec"]["x"]}'
        case decisions.Wait():
            return f'wait {plan.delay:g}'
        case decisions.Send():
            return f'send {plan.holding.name}'
    return type(plan).__name__.lower()


LATER = {'retries': 1, 'purpose': 'update', 'delayed': '2026-11-18T00:01:00+00:00'}
DONE = {'retries': 1, 'purpose': 'update', 'success': True}


def done(x):
    return {**DONE, 'essence': seal(x).digest}


def base(x):
    return {'purpose': 'update', 'success': True, 'message': seal(x).text}


@pytest.mark.parametrize(
    'body, handlers, cycle, expected',
    [
        # Creation and update.
        (build_body(1), ['create', 'update'], {}, 'create: create'),
        (build_body(1, handled=1), ['create', 'update'], {}, 'dismiss'),
        (build_body(2, handled=1), ['create', 'update'], {}, 'update: update'),
        (build_body(2, handled=1), ['create'], {}, 'update: nobody'),
        (build_body(1), ['create/fn', 'update/fn'], {'is_initial': True}, 'create: fn'),
        # Resuming.
        (build_body(1, handled=1), ['create', 'resume'], {'is_initial': True}, 'resume: resume'),
        (build_body(1, handled=1), ['create'], {'is_initial': True}, 'dismiss'),
        (
            build_body(1, handled=1),
            ['resume'],
            {'is_initial': True, 'resumed': frozenset({'resume'})},
            'dismiss',
        ),
        (build_body(1), ['create', 'resume'], {'is_initial': True}, 'create: create, resume'),
        (
            build_body(2, handled=1),
            ['update', 'resume'],
            {'is_initial': True},
            'update: update, resume',
        ),
        # The finalizer.
        (build_body(1), ['create', 'delete'], {}, 'send BLOCK'),
        (build_body(1, **HELD), ['create', 'delete'], {}, 'create: create'),
        (build_body(1, handled=1, **HELD), ['create', 'delete'], {}, 'dismiss'),
        (build_body(1, handled=1, **HELD), ['create'], {}, 'send ALLOW'),
        (build_body(1, handled=1, **HELD), [], {}, 'send ALLOW'),
        (build_body(1, **HELD), [], {}, 'dismiss'),
        # Deletion.
        (build_body(1, handled=1, **DELETED), ['delete'], {}, 'delete: delete'),
        (build_body(1, handled=1, **DELETED), ['create'], {}, 'release'),
        (build_body(1, handled=1, **DELETED), ['delete'], {'is_released': True}, 'release'),
        (
            build_body(1, handled=1, deletionTimestamp='now', finalizers=['other']),
            ['delete'],
            {},
            'dismiss',
        ),
        (build_body(1, **DELETED), [], {}, 'dismiss'),
        # Progress.
        (build_body(2, handled=1, progress={'a': LATER}), ['update/a'], {}, 'wait 60'),
        (
            build_body(2, handled=1, progress={'a': LATER}),
            ['update/a', 'update/b'],
            {},
            'update: b',
        ),
        (
            build_body(2, handled=1, progress={'a': DONE, 'b': LATER}),
            ['update/a', 'update/b'],
            {},
            'wait 60',
        ),
        (build_body(2, handled=1, progress={'a': DONE}), ['update/a'], {}, 'update: nobody'),
        (
            build_body(2, handled=1, progress={'a': {**LATER, 'purpose': 'create'}}),
            ['update/a'],
            {},
            'update: a',
        ),
        # Changes in mid-cycle: those who have finished before them are called in the next cycle.
        (
            build_body(3, handled=1, progress={'a': done(2), 'b': LATER, 'kopf.cycle': base(2)}),
            ['update/a', 'update/b'],
            {},
            'wait 60',
        ),
        (
            build_body(3, handled=1, progress={'a': done(2), 'b': LATER}),
            ['update/a', 'update/b'],
            {},
            'update: a',
        ),
        # Changes that are taken back.
        (
            build_body(1, handled=1, progress={'a': done(2), 'b': LATER, 'kopf.cycle': base(2)}),
            ['update/a', 'update/b'],
            {},
            'record 2',
        ),
        (
            build_body(1, handled=1, progress={'a': LATER, 'kopf.cycle': base(2)}),
            ['update/a'],
            {},
            'record 2',
        ),
        (build_body(1, handled=1, progress={'a': LATER}), ['update/a'], {}, 'noop: nobody'),
        # The handlers' own changes, as the server has told of them.
        (
            build_body(2, handled=1),
            ['update/a', 'update/b'],
            {'own': inventory.Own(frozenset({'a'}), seal(1), seal(2))},
            'update: b',
        ),
        (
            build_body(2, handled=1),
            ['create/a', 'update/a'],
            {'own': inventory.Own(frozenset({'a'}), seal(1), seal(2))},
            'update: nobody',
        ),
        (
            build_body(3, handled=1),
            ['update/a'],
            {'own': inventory.Own(frozenset({'a'}), seal(1), seal(2))},
            'update: nobody',
        ),  # 2 is recorded first
        (
            build_body(1, handled=1),
            ['update/a'],
            {'own': inventory.Own(frozenset({'a'}), seal(1), seal(2))},
            'record 2',
        ),
        (
            build_body(3, handled=1, progress={'a': done(2), 'b': done(2), 'kopf.cycle': base(2)}),
            ['update/a', 'update/b'],
            {'own': inventory.Own(frozenset({'b'}), seal(2), seal(3))},
            'update: nobody',
        ),  # 2 is recorded first, for a
        (
            build_body(3, handled=1, progress={'a': done(2), 'b': LATER, 'kopf.cycle': base(2)}),
            ['update/a', 'update/b'],
            {'own': inventory.Own(frozenset({'a'}), seal(2), seal(3))},
            'update: nobody',
        ),  # a knows 3, which is recorded
    ],
)
def test_plan_is_decided(look, body, handlers, cycle, expected):
    view = look(body, *handlers, cycle=inventory.CycleMemory(**cycle))

    assert show(decisions.decide(view)) == expected


def test_refused_functions_go_before_all_else(look):
    outbox = inventory.Outbox({}, (lambda body: None,), {}, None)

    plan = decisions.decide(look(build_body(2, handled=1), 'update', outbox=outbox))

    assert show(plan) == 'send KEEP'


@pytest.mark.parametrize(
    'names, is_alive, expected',
    [
        (['delete'], True, 'delete: delete'),
        (['create'], True, 'delete: nobody'),
        (['create'], False, 'release'),
    ],
)
def test_daemons_are_waited_for_before_the_object_is_released(look, names, is_alive, expected):
    body = build_body(1, handled=1, **DELETED)

    assert show(decisions.decide(look(body, *names, is_alive=is_alive))) == expected


# Records that wait to be accepted count as made.

PENDING = {
    'metadata': {'annotations': {f'{PREFIX}last-handled-configuration': '{"spec":{"x":2}}\n'}}
}


@pytest.mark.parametrize(
    'body, expected',
    [
        pytest.param(build_body(2, handled=1), 'send KEEP', id='as-handled'),
        pytest.param(build_body(3, handled=1), 'update: update', id='changed-since'),
        pytest.param(build_body(1, handled=1), 'update: update', id='taken-back'),
        pytest.param(build_body(3, handled=3), 'send KEEP', id='handled-by-others'),
    ],
)
def test_pending_records_count_as_made(look, body, expected):
    outbox = inventory.Outbox({}, (), PENDING, seal(1).digest)

    assert show(decisions.decide(look(body, 'update', outbox=outbox))) == expected


# What follows from the outcomes.

SUCCESS = outcomes.Outcome(final=True)
RETRY = outcomes.Outcome(final=False, delay=10, exception=Exception('boo!'))


def run(view, **results):
    plan = decisions.decide(view)
    state = plan.state.with_outcomes(results, now=NOW, essence=view.seen.digest)
    return recording.record(view, plan, decisions.Ran(state, results))


def list_records(records):
    annotations = records.own.get('metadata', {}).get('annotations', {})
    return {
        key.removeprefix(PREFIX): value and json.loads(value) for key, value in annotations.items()
    }


def test_finished_cycle_leaves_the_last_handled_state(look):
    view = look(build_body(2, handled=1, progress={'a': LATER}), 'update/a', 'update/b')

    records = run(view, a=SUCCESS, b=SUCCESS)

    assert list_records(records) == {'a': None, 'last-handled-configuration': {'spec': {'x': 2}}}
    assert records.is_over
    assert records.delay is None


@pytest.mark.guarantee('FND-013')
def test_unfinished_update_leaves_the_progress_and_what_was_seen(look):
    records = run(look(build_body(2, handled=1), 'update/a', 'update/b'), a=SUCCESS, b=RETRY)

    recorded = list_records(records)
    assert recorded['a']['success'] and recorded['a']['essence'] == seal(2).digest
    assert recorded['b']['retries'] == 1
    assert recorded['kopf.cycle']['message'] == seal(2).text
    assert 'last-handled-configuration' not in recorded
    assert (records.is_over, records.delay) == (False, 10)


@pytest.mark.guarantee('FND-016')
def test_resuming_does_not_hold_the_creation(look):
    records = run(
        look(build_body(1), 'create', 'resume', cycle=INITIAL), create=SUCCESS, resume=RETRY
    )

    recorded = list_records(records)
    assert recorded['last-handled-configuration'] == {'spec': {'x': 1}}
    assert recorded['resume']['retries'] == 1
    assert 'purpose' not in recorded['resume']
    assert records.cycle.is_initial
    assert records.cycle.resumed == {'create'}
    assert (records.is_over, records.delay) == (True, 10)


@pytest.mark.parametrize('is_alive, expected', [(False, HOLDING.ALLOW), (True, HOLDING.KEEP)])
def test_object_is_released_when_its_handlers_and_daemons_have_ended(look, is_alive, expected):
    view = look(build_body(1, handled=1, **DELETED), 'delete', is_alive=is_alive)

    records = run(view, delete=SUCCESS)

    assert records.holding is expected
    assert records.cycle.is_released is not is_alive


# What follows from the answers of the server.


def conclude(view, answer, *, drifts=(), makers=('a',), **kwargs):
    sent = decisions.Sent({}, frozenset(makers), has_users=True)
    version = None if answer is None else answer['metadata']['resourceVersion']
    drifts = tuple(application.Drift(*drift) for drift in drifts)
    applied = application.Applied(version, body=answer, drifts=drifts, **kwargs)
    return decisions.conclude(view, view.cycle, sent, applied)


SEEN = build_body(1, version='1')
OTHER = build_body(1, version='2', labels={'unessential': 'no'})


@pytest.mark.guarantee('FND-003')
@pytest.mark.parametrize(
    'answer, drifts, makers, expected',
    [
        pytest.param(build_body(2, version='2'), (), ['a'], 2, id='own'),
        pytest.param(build_body(1, version='2'), (), ['a'], None, id='unessential'),
        pytest.param(None, (), ['a'], None, id='nothing-sent'),
        pytest.param(build_body(2, version='2'), (), [], None, id='of-nobody'),
        pytest.param(
            build_body(2, version='2'),
            [(SEEN, build_body(2, version='2'))],
            ['a'],
            None,
            id='of-others',
        ),
        pytest.param(
            build_body(3, version='3'),
            [(SEEN, build_body(2, version='2'))],
            ['a'],
            None,
            id='of-both',
        ),
        pytest.param(
            build_body(2, version='3'),
            [(SEEN, build_body(1, version='2'))],
            ['a'],
            2,
            id='own-with-noise',
        ),
    ],
)
def test_own_changes_are_taken_from_the_answer(look, answer, drifts, makers, expected):
    cycle, outbox = conclude(look(SEEN, 'update/a'), answer, drifts=drifts, makers=makers)

    own = None if cycle.own is None else cycle.own.after.value['spec']['x']
    assert own == expected
    assert cycle.version == ('1' if answer is None else answer['metadata']['resourceVersion'])
    assert outbox is None


def test_what_is_refused_for_the_version_is_sent_later(look):
    fns = (lambda body: None,)
    _, outbox = conclude(
        look(SEEN, 'update/a'), None, fns=fns, unsent={'spec': {'y': 1}}, own={'status': {}}
    )

    assert (outbox.patch, outbox.fns, outbox.own) == ({'spec': {'y': 1}}, fns, {'status': {}})
    assert outbox.makers == {'a'}


def test_nothing_is_sent_to_objects_that_are_gone(look):
    _, outbox = conclude(look(SEEN, 'update/a'), None, fns=(lambda body: None,), is_gone=True)

    assert outbox is None


@pytest.mark.parametrize(
    'finished, essence, expected',
    [
        pytest.param(False, None, ('1', True), id='blank'),
        pytest.param(True, 'before', ('after', True), id='finished-with-it'),
        pytest.param(True, 'other', ('other', True), id='finished-with-another'),
    ],
)
def test_handlers_know_what_they_have_made(finished, essence, expected):
    state = progression.State(
        lambda id: {'success': True, 'essence': essence, 'retries': 1} if finished else None
    )

    known = state.knowing(['a'], before='before', after='after' if finished else '1')

    assert (known['a'].essence, known['a'].success) == expected
