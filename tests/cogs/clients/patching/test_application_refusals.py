"""
Application: what becomes of the changes that the cluster refuses, and of all others besides them.
"""

import asyncio
import datetime
import logging

import pytest
from things import ALLOW, BLOCK, FINALIZER, JSON, MERGE, put

from kopf._cogs.clients import errors
from kopf._cogs.clients.patching import application, sender

NOW = datetime.datetime.now(datetime.UTC)


async def test_refused_changes_are_dropped_and_all_the_rest_is_sent(thing, logs):
    await thing.create(finalizers=[FINALIZER, 'a/b'])

    applied = await thing.apply(
        {'spec': {'size': 'big'}},
        {'metadata': {'annotations': {'a': 'b'}}},
        ALLOW,
        fns=[put(1, 'spec', 'x')],
    )
    body = await thing.get()

    assert thing.asked == [('', MERGE, 422), ('', JSON, 200)]
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['spec'] == {'x': 1}
    assert body['metadata']['annotations'] == {'a': 'b'}
    assert body['metadata']['finalizers'] == ['a/b']
    assert ['Patching failed' in text and 'spec.size' in text for text in logs(logging.ERROR)] == [
        True
    ]


async def test_refused_status_is_dropped_and_our_part_of_it_is_sent(stateful, logs):
    await stateful.create(finalizers=[FINALIZER, 'a/b'])

    applied = await stateful.apply(
        {'spec': {'x': 1}, 'status': {'size': 'big'}},
        {'metadata': {'annotations': {'a': 'b'}}, 'status': {'own': 1}},
        ALLOW,
    )
    body = await stateful.get()

    assert stateful.asked == [
        ('status', MERGE, 422),
        ('', MERGE, 200),
        ('status', MERGE, 200),
        ('', JSON, 200),
    ]
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert (body['spec'], body['status']) == ({'x': 1}, {'own': 1})
    assert body['metadata']['annotations'] == {'a': 'b'}
    assert body['metadata']['finalizers'] == ['a/b']
    assert len(logs(logging.ERROR)) == 1


async def test_refused_part_of_ours_does_not_hold_the_finalizer_and_is_told(thing, logs):
    await thing.create(finalizers=[FINALIZER, 'a/b'])

    applied = await thing.apply({}, {'spec': {'size': 'big'}}, ALLOW)
    body = await thing.get()

    assert applied == application.Applied(body['metadata']['resourceVersion'], is_refused=True)
    assert body['metadata']['finalizers'] == ['a/b']
    assert 'our own records' in logs(logging.ERROR)[0]


@pytest.mark.parametrize('code', [400, 403, 413])
async def test_refusals_of_other_kinds_do_not_hold_the_finalizer(
    thing, operator_settings, code, logs
):
    operator_settings.networking.error_backoffs = []
    await thing.create(finalizers=[FINALIZER, 'a/b'])
    thing.sandbox.faults.inject(verb='patch', code=code, times=1)

    applied = await thing.apply(
        {'spec': {'x': 1}}, {'metadata': {'annotations': {'a': 'b'}}}, ALLOW
    )
    body = await thing.get()

    assert thing.asked == [('', MERGE, code), ('', MERGE, 200), ('', JSON, 200)]
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['metadata']['annotations'] == {'a': 'b'}
    assert body['metadata']['finalizers'] == ['a/b']
    assert len(logs(logging.ERROR)) == 1


async def test_changes_that_make_no_sense_at_all_do_not_hold_the_finalizer(thing):
    await thing.create(finalizers=[FINALIZER, 'a/b'])

    await thing.apply({'metadata': 'nonsense', 'kind': 'Nonsense'}, {'spec': {'own': 1}}, ALLOW)
    body = await thing.get()

    assert body['metadata']['finalizers'] == ['a/b']
    assert body['spec'] == {'own': 1}


@pytest.mark.parametrize('code', [400, 403, 422])
async def test_refused_finalizer_is_an_error(thing, operator_settings, code):
    operator_settings.networking.error_backoffs = []
    await thing.create()
    thing.sandbox.faults.inject(verb='patch', code=code)

    with pytest.raises(errors.APIError) as caught:
        await thing.apply(
            {'spec': {'x': 1}}, {'spec': {'own': 1}}, BLOCK, fns=[put(1, 'spec', 'y')]
        )

    assert caught.value.code == code


async def test_wrong_name_of_the_finalizer_is_an_error(thing, operator_settings):
    operator_settings.persistence.finalizer = 'not a name'
    await thing.create()

    with pytest.raises(errors.APIInvalidError, match='not a name'):
        await thing.apply(holding=BLOCK)


@pytest.mark.guarantee('NEW-064', 'NEW-066', 'NEW-084')
async def test_functions_are_kept_if_the_object_is_newer_than_known_and_can_be_applied_again(
    thing, logs
):
    fns = (put(1, 'spec', 'x'), put(2, 'spec', 'y'))
    await thing.create()
    changed = await thing.patch({'spec': {'foreign': True}})

    applied = await thing.apply(holding=BLOCK, fns=fns)
    assert thing.asked == [('', JSON, 422)]
    assert applied == application.Applied(fns=fns, is_held=True)
    assert await thing.get() == changed

    thing.body = changed
    applied = await thing.apply(holding=BLOCK, fns=applied.fns)
    body = await thing.get()
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['spec'] == {'foreign': True, 'x': 1, 'y': 2}
    assert logs(logging.WARNING) == []


@pytest.mark.guarantee('NEW-064')
async def test_merged_part_stays_if_the_functions_are_refused(thing, sandbox):
    def race(body):
        if thing.asked:
            sandbox.faults.inject(path='*/obj', verb='patch', code=409)
        body['spec']['y'] = 2

    await thing.create()
    applied = await thing.apply(
        {'spec': {'x': 1}}, {'metadata': {'annotations': {'a': 'b'}}}, fns=[race]
    )
    body = await thing.get()

    assert applied == application.Applied(
        body['metadata']['resourceVersion'], (race,), own={'metadata': {'annotations': {'a': 'b'}}}
    )
    assert body['spec'] == {'x': 1}
    assert 'annotations' not in body['metadata']


@pytest.mark.guarantee('NEW-064')
async def test_wrong_functions_are_kept_but_do_not_hold_the_finalizer(thing, logs):
    fn = put('big', 'spec', 'size')
    await thing.create()

    applied = await thing.apply({'spec': {'x': 1}}, fns=[fn], holding=BLOCK)
    body = await thing.get()

    assert thing.asked == [('', MERGE, 200), ('', JSON, 422), ('', JSON, 200)]
    assert applied == application.Applied(
        body['metadata']['resourceVersion'], (fn,), is_refused=True
    )
    assert body['spec'] == {'x': 1}
    assert body['metadata']['finalizers'] == [FINALIZER]
    assert 'patch functions' in logs(logging.ERROR)[0]


async def test_wrong_functions_of_the_status_are_kept_and_do_not_hold_the_rest(stateful):
    fns = (put('big', 'status', 'size'), put(1, 'spec', 'x'))
    await stateful.create()

    applied = await stateful.apply(
        {'spec': {'y': 2}}, {'metadata': {'annotations': {'a': 'b'}}}, BLOCK, fns
    )
    body = await stateful.get()

    assert stateful.asked == [
        ('', MERGE, 200),
        ('status', JSON, 422),
        ('', MERGE, 200),
        ('', JSON, 200),
    ]
    assert applied == application.Applied(body['metadata']['resourceVersion'], fns, is_refused=True)
    assert body['spec'] == {'y': 2}
    assert body['metadata']['annotations'] == {'a': 'b'}
    assert body['metadata']['finalizers'] == [FINALIZER]


async def test_wrong_functions_are_dropped_if_the_object_is_being_deleted(thing, logs):
    await thing.create(finalizers=[FINALIZER, 'a/b'])
    await thing.delete()

    applied = await thing.apply(fns=[put('big', 'spec', 'size')], holding=ALLOW)
    body = await thing.get()

    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['metadata']['finalizers'] == ['a/b']
    assert len(logs(logging.ERROR)) == 1


async def test_failing_functions_are_skipped(thing, logs):
    def fail(body):
        body['spec']['spoilt'] = True
        raise KeyError('boo!')

    await thing.create()
    applied = await thing.apply(fns=[put(1, 'spec', 'x'), fail, put(2, 'spec', 'y')], holding=BLOCK)
    body = await thing.get()

    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['spec'] == {'x': 1, 'y': 2}
    assert body['metadata']['finalizers'] == [FINALIZER]
    assert 'boo!' in logs(logging.ERROR)[0]


@pytest.mark.parametrize(
    'value',
    [
        pytest.param(object(), id='object'),
        pytest.param(NOW, id='datetime'),
        pytest.param({1, 2}, id='set'),
        pytest.param(b'bytes', id='bytes'),
    ],
)
async def test_what_is_not_json_is_dropped_and_all_the_rest_is_sent(thing, logs, value):
    await thing.create()

    applied = await thing.apply(
        {'spec': {'y': 1}, 'status': {'x': value}},
        {'spec': {'own': 1}},
        BLOCK,
        fns=[put(1, 'spec', 'z')],
    )
    body = await thing.get()

    assert thing.asked == [('', JSON, 200)]
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['spec'] == {'own': 1, 'z': 1}
    assert body['metadata']['finalizers'] == [FINALIZER]
    assert 'cannot be put as JSON' in logs(logging.ERROR)[0]


async def test_endless_structures_are_dropped_too(thing, logs):
    endless = []
    endless.append(endless)
    await thing.create()

    await thing.apply({'status': {'x': endless}}, {'spec': {'own': 1}})

    assert (await thing.get())['spec'] == {'own': 1}
    assert 'cannot be put as JSON' in logs(logging.ERROR)[0]


@pytest.mark.parametrize('value', [object(), NOW], ids=['object', 'datetime'])
async def test_what_is_not_json_from_functions_is_dropped_and_all_the_rest_is_sent(
    thing, logs, value
):
    await thing.create()

    applied = await thing.apply(
        {'spec': {'x': 1}}, {'spec': {'own': 1}}, BLOCK, fns=[put(value, 'spec', 'bad')]
    )
    body = await thing.get()

    assert thing.asked == [('', MERGE, 200), ('', JSON, 200)]
    assert applied == application.Applied(body['metadata']['resourceVersion'])
    assert body['spec'] == {'x': 1, 'own': 1}
    assert body['metadata']['finalizers'] == [FINALIZER]
    assert 'cannot be put as JSON' in logs(logging.ERROR)[0]


async def test_passing_conflicts_of_merging_are_tried_again(virtual_time, thing):
    await thing.create()
    thing.sandbox.faults.inject(verb='patch', code=409, times=2)

    applied = await thing.apply({'spec': {'x': 1}})

    assert (await thing.get())['spec'] == {'x': 1}
    assert applied.version == (await thing.get())['metadata']['resourceVersion']


async def test_lasting_conflicts_of_merging_are_raised_and_nothing_is_dropped(virtual_time, thing):
    await thing.create()
    thing.sandbox.faults.inject(verb='patch', code=409)

    since = asyncio.get_running_loop().time()
    with pytest.raises(errors.APIConflictError):
        await thing.apply({'spec': {'x': 1}})

    assert len(thing.asked) == sender.CONFLICTS + 1
    assert asyncio.get_running_loop().time() - since > sender.CONFLICT_DELAY * 6


async def test_patch_for_an_old_version_is_dropped(thing, logs):
    await thing.create()

    await thing.apply(
        {'metadata': {'resourceVersion': '1'}, 'spec': {'x': 1}}, {'spec': {'own': 1}}
    )

    assert (await thing.get())['spec'] == {'own': 1}
    assert len(logs(logging.ERROR)) == 1


@pytest.mark.guarantee('NEW-067')
@pytest.mark.parametrize(
    'changes',
    [
        pytest.param({'patch': {'spec': {'x': 1}}, 'holding': BLOCK}, id='merge'),
        pytest.param({'patch': {'status': {'x': 1}}, 'holding': BLOCK}, id='merge-of-status'),
        pytest.param({'fns': [put(1, 'spec', 'x')]}, id='functions'),
        pytest.param({'holding': BLOCK}, id='finalizer'),
    ],
)
async def test_absent_object_is_gone_with_no_error(thing, logs, changes):
    await thing.create()
    await thing.delete()

    applied = await thing.apply(**changes)

    assert applied == application.Applied(is_gone=True)
    assert len(thing.asked) == 1
    assert logs(logging.INFO) == []


@pytest.mark.guarantee('NEW-067')
async def test_object_that_is_gone_after_a_refusal_is_gone_with_no_other_errors(thing, logs):
    await thing.create()
    thing.sandbox.faults.inject(verb='patch', code=422, times=1)
    thing.sandbox.faults.inject(verb='patch', code=404)

    applied = await thing.apply({'spec': {'x': 1}}, {'spec': {'own': 1}})

    assert applied == application.Applied(is_gone=True)


async def test_other_errors_are_raised(thing, operator_settings):
    operator_settings.networking.error_backoffs = []
    await thing.create()
    thing.sandbox.faults.inject(verb='patch', code=500)

    with pytest.raises(errors.APIServerError):
        await thing.apply({'spec': {'x': 1}})

    assert len(thing.asked) == 1
