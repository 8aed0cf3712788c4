"""
Objects: whatever their annotations and statuses are, the operator understands or ignores what it
has once stored there.

The first line is an object. The second one is an essence to be stored, if there is one.
"""

import datetime
from typing import Any

import kopf
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import dicts, diffs, objects, patches
from kopf._core.actions import progression
from kopf._core.engines.peering import ranking

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
IDS = ['create_fn', 'create_fn/sub', 'update_fn/spec.field', 'x' * 100]
RECORD: Any = {
    'started': '2020-01-01T00:00:00',
    'retries': 1,
    'success': False,
    'failure': False,
    'message': 'x',
    'subrefs': ['create_fn/sub'],
}

PROGRESS_STORAGES = [
    kopf.AnnotationsProgressStorage(),
    kopf.AnnotationsProgressStorage(prefix='my-operator.example.com', v1=False, verbose=True),
    kopf.StatusProgressStorage(),
    kopf.SmartProgressStorage(),
    kopf.MultiProgressStorage(
        [kopf.StatusProgressStorage(name='x'), kopf.AnnotationsProgressStorage()]
    ),
]
DIFFBASE_STORAGES = [
    kopf.AnnotationsDiffBaseStorage(),
    kopf.AnnotationsDiffBaseStorage(
        prefix='my-operator.example.com', key='x' * 80, ignored_fields=['spec.x']
    ),
    kopf.StatusDiffBaseStorage(),
    kopf.MultiDiffBaseStorage(
        [kopf.AnnotationsDiffBaseStorage(), kopf.StatusDiffBaseStorage(name='x')]
    ),
]


def check(source: bytes) -> None:
    raws = source.split(b'\n')
    try:
        documents = [jsons.loads(raw) for raw in raws[:2] if raw.strip()]
    except jsons.JSONDecodeError:
        return
    if (
        not documents
        or not all(isinstance(document, dict) for document in documents)
        or _is_deep(source)
    ):
        return
    if not _is_object(documents[0]) or not _is_essence(documents[-1]):
        return
    body, essence = objects.Body(documents[0]), documents[-1]
    _check_views(body)
    for diffbase_storage in DIFFBASE_STORAGES:
        _check_diffbase(diffbase_storage, body, essence)
    for progress_storage in PROGRESS_STORAGES:
        _check_progress(progress_storage, body)
    _check_peers(body)


def _is_deep(source: bytes) -> bool:
    """Tell if it is possibly nested too deeply, which is another topic."""
    return source.count(b'{') + source.count(b'[') > 300


def _is_object(body: Any) -> bool:
    """Tell if the API could have sent it: it guarantees that much of its objects."""
    metadata = body.get('metadata')
    if not isinstance(metadata, dict) or not isinstance(metadata.get('name'), str):
        return False
    texts = [metadata.get('labels', {}), metadata.get('annotations', {})]
    owners = metadata.get('ownerReferences', [])
    return (
        all(
            isinstance(text, dict) and all(isinstance(value, str) for value in text.values())
            for text in texts
        )
        and isinstance(owners, list)
        and all(isinstance(owner, dict) for owner in owners)
    )


def _is_essence(essence: Any) -> bool:
    """Tell if it could be made of an object; what is already stored there can be anything."""
    metadata = essence.get('metadata', {})
    stanzas = (
        [metadata.get(name, {}) for name in ('labels', 'annotations')]
        if isinstance(metadata, dict)
        else [None]
    )
    return all(isinstance(stanza, dict) for stanza in stanzas)


def _check_views(body: objects.Body) -> None:
    for view in (
        body.spec,
        body.status,
        body.metadata,
        body.metadata.labels,
        body.metadata.annotations,
    ):
        str(view), len(view), dict(view)


def _check_diffbase(storage: Any, body: objects.Body, essence: Any) -> None:
    old, new = (
        storage.fetch(body=body),
        storage.build(body=body, extra_fields=['metadata.name', 'status.x']),
    )
    diffs.diff(old, new)
    patch = patches.Patch()
    storage.store(body=body, patch=patch, essence=essence)
    patched = objects.Body(patches.merge(body, patch))
    fetched = storage.fetch(body=patched)
    expected = {key: value for key, value in essence.items() if key not in ('apiVersion', 'kind')}
    if expected == essence:
        assert dicts.is_same(fetched, essence), 'what is fetched is not what was stored'
    if not isinstance(storage, kopf.StatusDiffBaseStorage | kopf.MultiDiffBaseStorage):
        again = storage.build(body=patched, extra_fields=['metadata.name', 'status.x'])
        assert diffs.diff(new, again) == diffs.EMPTY, 'the storage is seen in what it stores'
    repeated = patches.Patch()
    storage.store(body=patched, patch=repeated, essence=essence)
    assert not repeated, 'the same is stored again'


def _check_progress(storage: Any, body: objects.Body) -> None:
    for purpose in (None, 'create'):
        state = progression.State.read(storage, body, IDS, purpose=purpose)
        for id in IDS:
            state[id].sleeping(NOW), state[id].due(NOW), state[id].as_record()
    for id in IDS:
        patch = patches.Patch()
        storage.store(key=id, record=RECORD, body=body, patch=patch)
        patched = objects.Body(patches.merge(body, patch))
        fetched = storage.fetch(key=id, body=patched)
        assert fetched is None or isinstance(fetched, dict)
        storage.purge(key=id, body=patched, patch=patch)
        storage.touch(body=body, patch=patch, value='x')
    storage.clear(essence=kopf.AnnotationsDiffBaseStorage().build(body=body))
    storage.flush()


def _check_peers(body: objects.Body) -> None:
    """Take the object for a peering."""
    records = ranking.parse_records(body)
    known: Any = {}
    for now in (0.0, 10.0):
        known = ranking.update_peers(
            known, records, now=now, today=NOW + datetime.timedelta(seconds=now)
        )
        decision = ranking.decide(known, ranking.Rank(ranking.Identity('own'), 0), now=now)
        str(decision), [str(peer) for peer in known.values()]
