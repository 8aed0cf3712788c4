"""
Application: what is sent to the cluster, in how many requests, and what is told of it.
"""

import asyncio
import logging

import pytest
from things import ALLOW, BLOCK, FINALIZER, JSON, MERGE, put

import kopf
import kopf.testing
from kopf._cogs.clients.patching import application, sender, targets
from kopf._cogs.structs import references


@pytest.mark.guarantee('NEW-058', 'NEW-073')
async def test_nothing_is_sent_if_nothing_differs(thing):
    await thing.create(
        spec={'x': 1, 'list': [1]}, status={'y': 2}, labels={'a': 'b'}, finalizers=[FINALIZER]
    )

    applied = await thing.apply(
        {'spec': {'x': 1, 'absent': None, 'list': [1]}, 'status': {'y': 2}},
        {'metadata': {'labels': {'a': 'b'}}},
        BLOCK,
        fns=[put(1, 'spec', 'x'), lambda body: body['spec'].pop('absent', None)],
    )

    assert applied == application.Applied()
    assert thing.asked == []


async def test_nothing_is_sent_for_nothing(thing):
    await thing.create()

    assert await thing.apply() == application.Applied()
    assert thing.asked == []


@pytest.mark.guarantee('NEW-060', 'NEW-061', 'NEW-062', 'NEW-063', 'FND-014')
@pytest.mark.parametrize(
    'own_status, extra_requests',
    [
        pytest.param({}, [], id='records-in-annotations'),
        pytest.param({'status': {'own': 1}}, [('status', MERGE, 200)], id='records-everywhere'),
    ],
)
async def test_everything_goes_together_in_four_requests_if_the_status_is_a_subresource(
    stateful, own_status, extra_requests
):
    await stateful.create()

    applied = await stateful.apply(
        {'spec': {'x': 1}, 'status': {'x': 1}},
        {'metadata': {'annotations': {'a': 'b'}}, **own_status},
        BLOCK,
        fns=[put(2, 'spec', 'y'), put(2, 'status', 'y')],
    )
    body = await stateful.get()

    assert stateful.asked == [
        ('status', MERGE, 200),
        ('', MERGE, 200),
        ('status', JSON, 200),
        ('', JSON, 200),
        *extra_requests,
    ]
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['spec'] == {'x': 1, 'y': 2}
    assert body['status'] == {'x': 1, 'y': 2, **own_status.get('status', {})}
    assert body['metadata']['annotations'] == {'a': 'b'}
    assert body['metadata']['finalizers'] == [FINALIZER]


@pytest.mark.guarantee('NEW-060', 'NEW-061', 'NEW-063')
async def test_everything_goes_together_in_two_requests_if_the_status_is_a_field(stateless):
    await stateless.create()

    applied = await stateless.apply(
        {'spec': {'x': 1}, 'status': {'x': 1}},
        {'metadata': {'annotations': {'a': 'b'}}, 'status': {'own': 1}},
        BLOCK,
        fns=[put(2, 'spec', 'y'), put(2, 'status', 'y')],
    )
    body = await stateless.get()

    assert stateless.asked == [('', MERGE, 200), ('', JSON, 200)]
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert (body['spec'], body['status']) == ({'x': 1, 'y': 2}, {'x': 1, 'y': 2, 'own': 1})
    assert body['metadata']['finalizers'] == [FINALIZER]


@pytest.mark.guarantee('NEW-060')
@pytest.mark.parametrize(
    'changes, expected',
    [
        pytest.param({'patch': {'spec': {'x': 1}}}, [('', MERGE)], id='merge'),
        pytest.param({'patch': {'status': {'x': 1}}}, [('status', MERGE)], id='merge-of-status'),
        pytest.param(
            {'own': {'spec': {'x': 1}}, 'patch': {'spec': {'y': 1}}}, [('', MERGE)], id='two-merges'
        ),
        pytest.param({'fns': [put(1, 'spec', 'x')]}, [('', JSON)], id='functions'),
        pytest.param(
            {'fns': [put(1, 'status', 'x')]}, [('status', JSON)], id='functions-of-status'
        ),
        pytest.param({'holding': BLOCK}, [('', JSON)], id='finalizer'),
        pytest.param(
            {'holding': BLOCK, 'fns': [put(1, 'spec', 'x')]},
            [('', JSON)],
            id='finalizer-and-functions',
        ),
        pytest.param(
            {'holding': BLOCK, 'own': {'spec': {'x': 1}}},
            [('', MERGE), ('', JSON)],
            id='finalizer-and-merge',
        ),
    ],
)
async def test_each_request_is_made_only_if_needed(stateful, changes, expected):
    await stateful.create()

    applied = await stateful.apply(**changes)

    assert [(subresource, kind) for subresource, kind, _ in stateful.asked] == expected
    assert applied.version == (await stateful.get())['metadata']['resourceVersion']


@pytest.mark.guarantee('NEW-059')
async def test_patch_is_merged_and_removes_and_overwrites(thing):
    await thing.create(spec={'removed': 1, 'nested': {'kept': 1, 'set': 1}, 'list': [1, 2, 3]})

    await thing.apply({'spec': {'removed': None, 'nested': {'set': 2}, 'list': [4]}})

    assert (await thing.get())['spec'] == {'nested': {'kept': 1, 'set': 2}, 'list': [4]}


@pytest.mark.guarantee('NEW-054', 'NEW-055', 'NEW-056')
async def test_functions_are_applied_in_order_to_what_the_merge_has_made(thing):
    def extend(body):
        seen.append(body['spec']['list'])
        body['spec']['list'] = [*body['spec']['list'], len(body['spec']['list'])]

    seen = []
    await thing.create(spec={'list': []})
    await thing.patch({'spec': {'foreign': True}})
    await thing.apply({'spec': {'list': [0]}}, fns=[extend, extend])

    assert (await thing.get())['spec'] == {'list': [0, 1, 2], 'foreign': True}
    assert [value[:1] for value in seen] == [[0]] * len(seen)
    assert thing.body['spec'] == {'list': []}


async def test_removal_of_everything_does_not_remove_what_is_ours(thing):
    await thing.create(annotations={'foreign': 'x', 'own': 'old'})

    await thing.apply(
        {'metadata': {'annotations': None}}, {'metadata': {'annotations': {'own': 'new'}}}
    )

    assert (await thing.get())['metadata']['annotations'] == {'own': 'new'}


# The finalizer.


@pytest.mark.guarantee('NEW-083', 'WLD-011')
@pytest.mark.parametrize(
    'before, holding, after',
    [
        pytest.param(None, BLOCK, [FINALIZER], id='added'),
        pytest.param(['a/b', 'c/d'], BLOCK, ['a/b', 'c/d', FINALIZER], id='added-after-others'),
        pytest.param(['a/b', FINALIZER, 'c/d'], ALLOW, ['a/b', 'c/d'], id='removed-among-others'),
        pytest.param([FINALIZER], ALLOW, None, id='removed'),
    ],
)
async def test_finalizer_is_added_and_removed_by_a_guarded_patch(thing, before, holding, after):
    await thing.create(**({'finalizers': before} if before else {}))

    await thing.apply(holding=holding)

    assert thing.asked == [('', JSON, 200)]
    assert (await thing.get())['metadata'].get('finalizers') == after


@pytest.mark.guarantee('NEW-085')
async def test_all_occurrences_of_the_finalizer_are_removed(thing):
    await thing.create(finalizers=[FINALIZER, 'a/b'])
    # The cluster itself would not keep them.
    thing.body['metadata']['finalizers'] = [
        FINALIZER,
        'a/b',
        FINALIZER,
    ]

    await thing.apply(holding=ALLOW)

    assert (await thing.get())['metadata']['finalizers'] == ['a/b']


@pytest.mark.guarantee('NEW-083', 'NEW-084', 'WLD-011')
@pytest.mark.parametrize('holding', [BLOCK, ALLOW])
async def test_finalizers_put_by_others_at_the_same_time_are_never_lost(thing, holding):
    await thing.create(finalizers=['a/b', FINALIZER] if holding is ALLOW else ['a/b'])
    changed = await thing.patch(
        {'metadata': {'finalizers': [*thing.body['metadata']['finalizers'], 'c/d']}}
    )

    applied = await thing.apply(holding=holding)
    assert applied == application.Applied(is_held=True)
    assert await thing.get() == changed

    thing.body = changed
    applied = await thing.apply(holding=holding)
    assert not applied.is_held
    assert (await thing.get())['metadata']['finalizers'] == (
        ['a/b', 'c/d'] if holding is ALLOW else ['a/b', 'c/d', FINALIZER]
    )


@pytest.mark.guarantee('WLD-011')
async def test_foreign_finalizers_of_the_patch_go_with_ours(thing, logs):
    await thing.create()

    await thing.apply({'metadata': {'finalizers': ['a/b']}}, holding=BLOCK)

    assert (await thing.get())['metadata']['finalizers'] == ['a/b', FINALIZER]
    assert logs(logging.WARNING) == []


async def test_object_is_gone_with_its_last_finalizer(thing):
    await thing.create(finalizers=[FINALIZER])
    await thing.delete()

    applied = await thing.apply({'status': {'x': 1}}, holding=ALLOW)

    assert not applied.is_held
    with pytest.raises(kopf.testing.ApiError):
        await thing.get()


@pytest.mark.parametrize('done', [0, 1, 2, 3])
async def test_application_can_be_cancelled_at_any_request_and_repeated(stateful, done):
    def stall_later(body):
        if len(stateful.asked) == done and not stalls:  # they are asked before every request
            stalls.append(stateful.sandbox.faults.inject(path='*/obj*', verb='patch', stall=True))
        body['spec']['y'] = body['status']['y'] = 2

    stalls = []
    changes = {
        'patch': {'spec': {'x': 1}, 'status': {'x': 1}},
        'fns': [stall_later],
        'holding': BLOCK,
    }
    await stateful.create()
    task = asyncio.create_task(stateful.apply(**changes))
    async with asyncio.timeout(60):
        while not stalls:
            await asyncio.sleep(0)
        await stalls[0].wait_until_hit()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    stalls[0].lift()
    applied = None
    # The interrupted request is possibly executed meanwhile.
    while applied is None or applied.is_held:
        stateful.body = await stateful.get()
        applied = await stateful.apply(**changes)
    body = await stateful.get()

    assert (body['spec'], body['status']) == ({'x': 1, 'y': 2}, {'x': 1, 'y': 2})
    assert body['metadata']['finalizers'] == [FINALIZER]


# Logs.


@pytest.mark.guarantee('NEW-203')
async def test_every_request_is_logged_with_its_kind_and_target(stateful, logs):
    await stateful.create()

    await stateful.apply(
        {'spec': {'x': 1}, 'status': {'x': 2}}, fns=[put(3, 'spec', 'y'), put(4, 'status', 'y')]
    )

    assert logs() == [
        "Merge-patching the status with: {'status': {'x': 2}}",
        "Merge-patching the resource with: {'spec': {'x': 1}}",
        "JSON-patching the status with: [{'op': 'add', 'path': '/status/y', 'value': 4}]",
        "JSON-patching the resource with: [{'op': 'add', 'path': '/spec/y', 'value': 3}]",
    ]


async def test_content_of_secrets_is_not_logged(sandbox, context, logs):
    body = await sandbox.create({'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'obj'}})
    resource = references.Resource('', 'v1', 'secrets', namespaced=True)
    changes = application.Changes(
        kopf.Patch(
            {'stringData': {'key': 'topsecret'}}, fns=[put('dG9wc2VjcmV0', 'data', 'another')]
        ),
        kopf.Patch(),
    )

    await sender.apply_changes(
        targets.identify(resource, body),
        changes,
        body,
        context=context,
        logger=logging.getLogger('kopf.obj'),
    )

    assert set((await sandbox.get('secrets', 'obj'))['data']) == {'key', 'another'}
    assert len(logs()) >= 2
    assert not any('topsecret' in text or 'dG9wc2VjcmV0' in text for text in logs())


@pytest.mark.guarantee('NEW-075')
async def test_dropped_fields_are_warned_of(thing, logs):
    await thing.create()

    await thing.apply({'spec': {'x': 1}, 'pruned': {'known': 'x', 'unknown': 'y'}})

    assert [
        'pruned.unknown' in text and 'pruned.known' not in text for text in logs(logging.WARNING)
    ] == [True]


@pytest.mark.guarantee('NEW-075')
async def test_only_the_merged_part_is_verified(thing, logs):
    await thing.create()

    await thing.apply({'spec': {'x': 1}}, fns=[put(2, 'spec', 'x'), put('z', 'pruned', 'unknown')])

    assert (await thing.get())['spec'] == {'x': 2}
    assert logs(logging.WARNING) == []
