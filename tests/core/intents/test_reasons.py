"""
Reasons: why an object should be handled, if at all.
"""

import pytest

from kopf._cogs.structs import objects
from kopf._core.intents import reasons

FINALIZER = 'kopf.dev/finalizer'
Reason = reasons.Reason

DELETED = {'deletionTimestamp': '2026-11-16T00:00:00Z'}
OURS, FOREIGN = {'finalizers': ['a', FINALIZER]}, {'finalizers': ['a']}


@pytest.mark.parametrize(
    'metadata, is_new, is_changed, is_initial, expected',
    [
        pytest.param({}, True, True, False, Reason.CREATE, id='new'),
        pytest.param({}, True, True, True, Reason.CREATE, id='new-before-the-start'),
        pytest.param({}, False, True, False, Reason.UPDATE, id='changed'),
        pytest.param({}, False, True, True, Reason.UPDATE, id='changed-before-the-start'),
        pytest.param({}, False, False, True, Reason.RESUME, id='unchanged-before-the-start'),
        pytest.param({}, False, False, False, Reason.NOOP, id='unchanged'),
        pytest.param(OURS, False, False, False, Reason.NOOP, id='blocked'),
        pytest.param(OURS, True, True, False, Reason.CREATE, id='new-blocked'),
        pytest.param(DELETED | OURS, True, True, True, Reason.DELETE, id='new-deleted'),
        pytest.param(DELETED | OURS, False, True, False, Reason.DELETE, id='changed-deleted'),
        pytest.param(DELETED | OURS, False, False, True, Reason.DELETE, id='unchanged-deleted'),
        pytest.param(DELETED | FOREIGN, True, True, True, Reason.FREE, id='new-deleted-not-by-us'),
        pytest.param(
            DELETED | FOREIGN, False, True, False, Reason.FREE, id='changed-deleted-not-by-us'
        ),
        pytest.param(DELETED, False, False, False, Reason.FREE, id='deleted-with-no-finalizers'),
    ],
)
def test_reason_is_detected(metadata, is_new, is_changed, is_initial, expected):
    reason = reasons.detect_reason(
        objects.Body({'metadata': metadata}),
        finalizer=FINALIZER,
        is_new=is_new,
        is_changed=is_changed,
        is_initial=is_initial,
    )

    assert reason is expected
