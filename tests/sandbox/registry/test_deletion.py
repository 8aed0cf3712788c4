import dataclasses
import datetime

import pytest

from kopf._sandbox.meta import errors, kinds
from kopf._sandbox.registry import deletion
from kopf._sandbox.storage import memory

NOW = datetime.datetime(2026, 11, 16, 12, 30, 45, tzinfo=datetime.UTC)
CUSTOM = kinds.Resource(
    'kopf.dev', 'v1', 'kopfexamples', 'kopfexample', 'KopfExample', True, (), custom=True
)
POD = kinds.Resource('', 'v1', 'pods', 'pod', 'Pod', True, ())
NAMESPACE = kinds.Resource('', 'v1', 'namespaces', 'namespace', 'Namespace', False, ())


def make(finalizers=(), **fields):
    meta = {
        'name': 'a',
        'generation': 1,
        **({'finalizers': list(finalizers)} if finalizers else {}),
    }
    return {'metadata': meta, **fields}


def test_objects_with_no_finalizers_are_removed_untouched():
    obj = make()

    verdict = deletion.mark(CUSTOM, obj, deletion.Options(), NOW)

    assert verdict is deletion.Verdict.REMOVE
    assert obj == make()


def test_objects_with_finalizers_are_marked():
    obj = make(['a/b'])

    verdict = deletion.mark(CUSTOM, obj, deletion.Options(), NOW)

    assert verdict is deletion.Verdict.MARK
    assert obj['metadata'] == {
        'name': 'a',
        'finalizers': ['a/b'],
        'generation': 2,
        'deletionTimestamp': '2026-11-16T12:30:45Z',
        'deletionGracePeriodSeconds': 0,
    }


def test_marked_objects_keep_waiting():
    obj = make(['a/b'])
    deletion.mark(CUSTOM, obj, deletion.Options(), NOW)

    verdict = deletion.mark(CUSTOM, obj, deletion.Options(), NOW + datetime.timedelta(hours=1))

    assert verdict is deletion.Verdict.WAIT
    assert obj['metadata']['deletionTimestamp'] == '2026-11-16T12:30:45Z'


@pytest.mark.parametrize(
    'propagation, before, after',
    [
        pytest.param('', ['a/b', 'orphan'], ['a/b', 'orphan'], id='default'),
        pytest.param('Background', ['a/b', 'orphan'], ['a/b'], id='background'),
        pytest.param('Orphan', ['a/b', 'foregroundDeletion'], ['a/b', 'orphan'], id='orphan'),
        pytest.param(
            'Foreground', ['a/b', 'orphan'], ['a/b', 'foregroundDeletion'], id='foreground'
        ),
        pytest.param('Foreground', [], ['foregroundDeletion'], id='foreground-alone'),
    ],
)
def test_propagation_policies_are_finalizers(propagation, before, after):
    assert deletion.choose_finalizers(before, propagation) == after


@pytest.mark.parametrize(
    'spec, status, options, verdict, grace',
    [
        pytest.param({}, {}, {}, deletion.Verdict.DISMISS, 0, id='unassigned'),
        pytest.param(
            {'nodeName': 'n', 'terminationGracePeriodSeconds': 30},
            {},
            {},
            deletion.Verdict.MARK,
            30,
            id='running',
        ),
        pytest.param(
            {'nodeName': 'n'}, {'phase': 'Succeeded'}, {}, deletion.Verdict.DISMISS, 0, id='over'
        ),
        pytest.param(
            {'nodeName': 'n', 'terminationGracePeriodSeconds': 30},
            {},
            {'grace_period': 5},
            deletion.Verdict.MARK,
            5,
            id='hasty',
        ),
        pytest.param(
            {'nodeName': 'n', 'terminationGracePeriodSeconds': 30},
            {},
            {'grace_period': 0},
            deletion.Verdict.DISMISS,
            0,
            id='forced',
        ),
    ],
)
def test_pods_on_nodes_have_time_to_finish(spec, status, options, verdict, grace):
    obj = make(spec=spec, status=status)

    assert deletion.mark(POD, obj, deletion.Options(**options), NOW) is verdict
    assert obj['metadata'].get('deletionGracePeriodSeconds') == grace
    if grace is not None:
        assert obj['metadata']['deletionTimestamp'] == deletion.format_time(
            NOW + datetime.timedelta(seconds=grace)
        )


def test_namespaces_are_terminating_while_they_have_finalizers_in_spec():
    obj = make(spec={'finalizers': ['kubernetes']}, status={'phase': 'Active'})

    assert deletion.mark(NAMESPACE, obj, deletion.Options(), NOW) is deletion.Verdict.MARK
    assert obj['status'] == {'phase': 'Terminating'}
    assert 'deletionGracePeriodSeconds' not in obj['metadata']
    assert not deletion.is_released(NAMESPACE, obj)
    assert deletion.is_released(NAMESPACE, {**obj, 'spec': {}})


@pytest.mark.parametrize(
    'meta, expected',
    [
        pytest.param({}, False, id='alive'),
        pytest.param({'finalizers': []}, False, id='alive-with-none'),
        pytest.param({'deletionTimestamp': 'x', 'finalizers': ['a/b']}, False, id='held'),
        pytest.param(
            {'deletionTimestamp': 'x', 'deletionGracePeriodSeconds': 30}, False, id='graceful'
        ),
        pytest.param(
            {'deletionTimestamp': 'x', 'deletionGracePeriodSeconds': 0}, True, id='released'
        ),
    ],
)
def test_objects_are_released_by_the_last_finalizer(meta, expected):
    assert deletion.is_released(CUSTOM, {'metadata': meta}) is expected


@pytest.mark.parametrize(
    'body, query, expected',
    [
        pytest.param({}, {}, deletion.Options(), id='nothing'),
        pytest.param(
            {'propagationPolicy': 'Orphan'},
            {'propagationPolicy': 'Foreground'},
            deletion.Options(propagation='Orphan'),
            id='body-wins',
        ),
        pytest.param(
            None,
            {'propagationPolicy': 'Foreground'},
            deletion.Options(propagation='Foreground'),
            id='query',
        ),
        pytest.param(
            {}, {'propagationPolicy': 'Foreground'}, deletion.Options(), id='query-with-body'
        ),
        pytest.param(None, {'dryRun': 'All'}, deletion.Options(dry_run=True), id='dry-run'),
        pytest.param(
            {'orphanDependents': True},
            {},
            deletion.Options(propagation='Orphan'),
            id='legacy-orphans',
        ),
        pytest.param(
            None,
            {'orphanDependents': 'false'},
            deletion.Options(propagation='Background'),
            id='legacy-not',
        ),
        pytest.param({'gracePeriodSeconds': 0}, {}, deletion.Options(grace_period=0), id='grace'),
        pytest.param(
            {'preconditions': {'uid': 'u', 'resourceVersion': '5'}},
            {},
            deletion.Options(uid='u', version='5'),
            id='preconditions',
        ),
    ],
)
def test_options_come_from_the_body_or_else_from_the_query(body, query, expected):
    assert deletion.parse_options(body, query) == dataclasses.replace(expected, body=body or {})


@pytest.mark.parametrize(
    'body',
    [
        pytest.param({'propagationPolicy': 'Sideways'}, id='unknown-policy'),
        pytest.param({'propagationPolicy': 'Orphan', 'orphanDependents': True}, id='both-policies'),
    ],
)
def test_contradicting_options_are_invalid(body):
    with pytest.raises(errors.ApiError) as e:
        deletion.parse_options(body, {})

    assert e.value.code == 422


@pytest.mark.parametrize(
    'options, message',
    [
        pytest.param(
            deletion.Options(uid='other'),
            'the UID in the precondition (other) does not match the UID in record (u)',
            id='uid',
        ),
        pytest.param(
            deletion.Options(version='1'),
            'the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (5)',
            id='version',
        ),
    ],
)
def test_failed_preconditions_are_conflicts(options, message):
    stored = memory.build_stored({'metadata': {'name': 'a', 'uid': 'u'}}, 5, {})

    with pytest.raises(errors.ApiError) as e:
        deletion.check_preconditions(CUSTOM, stored, options)

    assert e.value.code == 409
    assert (
        f'Operation cannot be fulfilled on KopfExample.kopf.dev "a": {message}' in e.value.message
    )
