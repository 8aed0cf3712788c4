"""
Servers change what is written, in ways that a real API server can do it, and always in the same
way.
"""

import base64
import copy
import json

import pytest
from chaotic_operators import PLURAL, build_crd, build_object

import kopf
import kopf.testing
from kopf._kits.chaos import plans, server_behaviours, worlds


def build(spec=None, **metadata):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {'name': 'one', **metadata},
        'spec': {} if spec is None else spec,
    }


def double(body):
    body['spec']['size'] *= 2


def default_size(body):
    body['spec'].setdefault('size', 1)


def prune(body):
    body['spec'].pop('unknown', None)


def refuse(body):
    if body['spec'].get('size') == 'wrong':
        raise kopf.AdmissionError('The size is wrong.', code=409)


def refuse_briefly(body):
    raise kopf.AdmissionError('Never.', code=None)


@pytest.mark.parametrize('behaviour', server_behaviours.BEHAVIOURS)
@pytest.mark.parametrize(
    'body',
    [
        build(),
        build({'cpu': '2000m', 'list': [{'cpu': '1000m'}, 'text', 5]}),
        build(labels={'a': 'b'}),
        {'metadata': {}, 'data': {}},
    ],
)
def test_common_behaviours_agree_with_themselves(behaviour, body):
    once = copy.deepcopy(body)
    behaviour(once)
    twice = copy.deepcopy(once)
    behaviour(twice)

    assert once == twice


@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param('1000m', '1', id='thousandths'),
        pytest.param('12000m', '12', id='many'),
        pytest.param('500m', '500m', id='less-than-one'),
        pytest.param('000m', '000m', id='nothing'),
        pytest.param('text', 'text', id='text'),
        pytest.param(1000, 1000, id='number'),
    ],
)
def test_quantities_are_normalised_wherever_they_are(given, expected):
    body = build({'list': [{'cpu': given}], 'cpu': given})

    server_behaviours.normalise_quantities(body)

    assert body['spec'] == {'list': [{'cpu': expected}], 'cpu': expected}


def test_only_the_chosen_behaviours_are_applied():
    server = server_behaviours.BehavingServer([default_size, prune], ['prune', 'add_label'])

    rewritten = server.rewrite(build({'unknown': 1}))

    assert rewritten == build(labels={'chaos.kopf.dev/labelled': 'yes'})


def test_given_bodies_are_not_changed():
    body = build({'unknown': 1})

    server_behaviours.BehavingServer([prune], ['prune']).rewrite(body)

    assert body == build({'unknown': 1})


def test_server_that_disagrees_with_itself_is_an_error():
    with pytest.raises(
        server_behaviours.UnsteadyServerError, match='double always change the object again'
    ):
        server_behaviours.BehavingServer([double], ['double']).rewrite(build({'size': 1}))


def test_behaviours_of_the_same_name_are_refused():
    with pytest.raises(ValueError, match="two different things named 'prune'"):
        server_behaviours.name_behaviours([prune, prune])


@pytest.mark.parametrize(
    'old, new, operations',
    [
        pytest.param(build({'a': 1}), build({'a': 1}), [], id='same'),
        pytest.param(build({'a': 1}), build({'a': 2}), [('add', '/spec', {'a': 2})], id='changed'),
        pytest.param(
            build(), build(labels={'a': 'b'}), [('add', '/metadata/labels', {'a': 'b'})], id='added'
        ),
        pytest.param(
            build(labels={'a': 'b'}), build(), [('remove', '/metadata/labels')], id='removed'
        ),
    ],
)
def test_changes_are_told_as_json_patches(old, new, operations):
    made = server_behaviours.build_operations(old, new)

    assert [tuple(operation.values()) for operation in made] == operations


def ask(body, *behaviours):
    server = server_behaviours.BehavingServer(
        behaviours, [behaviour.__name__ for behaviour in behaviours]
    )
    return server, {
        'apiVersion': 'admission.k8s.io/v1',
        'kind': 'AdmissionReview',
        'request': {'uid': 'u', 'object': body},
    }


@pytest.mark.parametrize('body', [None, {'kind': 'Event', 'metadata': {}, 'spec': {}}])
async def test_nothing_is_changed_where_there_is_nothing_to_change(body):
    server, review = ask(body, default_size)

    answer = await server.review('/', review)

    assert answer['response'] == {'uid': 'u', 'allowed': True}


async def test_changes_are_answered_as_patches():
    server, review = ask(build(), default_size)

    answer = await server.review('/', review)

    operations = json.loads(base64.b64decode(answer['response'].pop('patch')))
    assert answer['response'] == {'uid': 'u', 'allowed': True, 'patchType': 'JSONPatch'}
    assert operations == [{'op': 'add', 'path': '/spec', 'value': {'size': 1}}]


@pytest.mark.parametrize(
    'behaviour, code, message',
    [
        pytest.param(refuse, 409, 'The size is wrong.', id='with-its-code'),
        pytest.param(refuse_briefly, 422, 'Never.', id='with-no-code'),
    ],
)
async def test_refusals_are_answered_as_denials(behaviour, code, message):
    server, review = ask(build({'size': 'wrong'}), behaviour)

    answer = await server.review('/', review)

    assert answer['response'] == {
        'uid': 'u',
        'allowed': False,
        'status': {'code': code, 'message': message},
    }


@pytest.fixture
def world():
    """A cluster in which the server does it all, with an operator of no handlers."""
    behaviours = [default_size, prune, refuse]
    plan = plans.Plan(server=tuple(server_behaviours.name_behaviours(behaviours)))
    with worlds.World(
        plan, lambda registry: None, {}, server=behaviours, apply=[build_crd()]
    ) as world:
        world.begin()
        yield world
        world.end()


def test_everything_is_written_as_the_server_wants_it(world):
    created = world.create(build_object('one', unknown=1, cpu='1000m'))
    patched = world.patch(PLURAL, 'one', {'spec': {'unknown': 2, 'size': None, 'cpu': '2000m'}})

    assert created['spec'] == {'size': 1, 'cpu': '1'}
    assert patched['spec'] == {'size': 1, 'cpu': '2'}
    assert created['metadata']['labels'].keys() == {
        'chaos.kopf.dev/labelled',
        'chaos.kopf.dev/checksum',
    }
    assert created['metadata']['labels'] != patched['metadata']['labels']


def test_what_the_server_does_not_want_is_refused(world):
    world.create(build_object('one'))

    with pytest.raises(kopf.testing.ApiError, match='The size is wrong') as caught:
        world.patch(PLURAL, 'one', {'spec': {'size': 'wrong'}})

    assert caught.value.code == 409
    assert world.get(PLURAL, 'one')['spec'] == {'size': 1}
