"""
The names of annotations: a contract with other versions and other operators.
"""

import re

import hypothesis
import pytest
from hypothesis import strategies

from kopf._cogs.configs import diffbase, progress

PREFIX = 'kopf.zalando.org'
REPLICASET = {
    'kind': 'ReplicaSet',
    'metadata': {'ownerReferences': [{'kind': 'Deployment', 'name': 'x'}]},
}


@pytest.fixture(params=[progress.AnnotationsProgressStorage, diffbase.AnnotationsDiffBaseStorage])
def cls(request):
    return request.param


@pytest.mark.guarantee('NEW-118', 'CFG-058', 'CFG-060')
@pytest.mark.parametrize(
    'key, name',
    [
        ('create_fn', 'create_fn'),
        ('parent/child-1', 'parent.child-1'),
        ('fld/spec.a.b', 'fld.spec.a.b'),
        ('outer.<locals>.inner', 'outer._locals_.inner'),
        ('x' * 63, 'x' * 63),
    ],
)
def test_short_keys_are_readable(cls, key, name):
    assert list(cls(v1=False).make_keys(key)) == [f'{PREFIX}/{name}']
    assert list(cls(v1=False, prefix='my-op.example.com').make_keys(key)) == [
        f'my-op.example.com/{name}'
    ]
    assert cls.make_safe_key(key) == name


@pytest.mark.guarantee('NEW-119', 'NEW-120')
@pytest.mark.parametrize(
    'key, newer, older',
    [
        pytest.param('x' * 80, 'x' * 56 + '-Aa3w-Q', 'x' * 39 + '-Aa3w-Q', id='xs'),
        pytest.param('a' * 70, 'a' * 56 + '-DKa84Q', 'a' * 39 + '-DKa84Q', id='as'),
    ],
)
def test_long_keys_are_cut_and_closed_with_a_digest(cls, key, newer, older):
    storage = cls()

    assert list(storage.make_keys(key)) == [f'{PREFIX}/{newer}', f'{PREFIX}/{older}']
    assert (storage.make_v2_key(key), storage.make_v1_key(key)) == (
        f'{PREFIX}/{newer}',
        f'{PREFIX}/{older}',
    )
    assert newer.endswith(storage.make_suffix(key))
    assert list(cls(v1=False).make_keys(key)) == [f'{PREFIX}/{newer}']


@pytest.mark.guarantee('NEW-120')
def test_older_names_are_there_only_if_they_differ(cls):
    assert list(cls().make_keys('x' * 46)) == [f'{PREFIX}/{"x" * 46}']
    assert [len(name) for name in cls().make_keys('x' * 47)] == [len(PREFIX) + 1 + 47, 63]


@pytest.mark.guarantee('NEW-120')
def test_digests_are_of_the_id_in_newer_names_and_of_the_replaced_id_in_older_names(cls):
    slashed, dotted = 'x' * 70 + '/y', 'x' * 70 + '.y'
    storage = cls()

    assert storage.make_v2_key(slashed) != storage.make_v2_key(dotted)
    assert storage.make_v1_key(slashed) == storage.make_v1_key(dotted)


@pytest.mark.parametrize('key', ['_', '_fn', 'fn_', '<lambda>', 'naïve', 'two words', '...', ''])
def test_ids_that_cannot_be_names_get_names_of_their_own(cls, key):
    keys = list(cls().make_keys(key))

    assert len(keys) == 1
    assert re.fullmatch(
        r'kopf\.zalando\.org/[A-Za-z0-9][A-Za-z0-9._-]*-[A-Za-z0-9.-]*[A-Za-z0-9]', keys[0]
    )
    assert list(cls().make_keys(f'{key}_')) != keys


@hypothesis.settings(deadline=None)
@hypothesis.given(
    strategies.text(max_size=100),
    strategies.sampled_from(['kopf.zalando.org', 'x' * 70, 'y' * 189]),
)
def test_names_are_accepted_by_kubernetes_whatever_the_ids_are(key, prefix):
    storage = progress.AnnotationsProgressStorage(prefix=prefix)

    for name in storage.make_keys(key):
        assert name.startswith(f'{prefix}/')
        assert re.fullmatch(
            r'[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?', name.removeprefix(f'{prefix}/')
        )


@pytest.mark.guarantee('NEW-121')
@pytest.mark.parametrize(
    'body, suffix',
    [
        pytest.param(REPLICASET, '-ofDRS', id='replicaset-of-deployment'),
        pytest.param({**REPLICASET, 'metadata': {}}, '', id='replicaset-alone'),
        pytest.param(
            {**REPLICASET, 'metadata': {'ownerReferences': [{'kind': 'Other'}]}},
            '',
            id='replicaset-of-other',
        ),
        pytest.param({**REPLICASET, 'kind': 'Pod'}, '', id='other-of-deployment'),
    ],
)
def test_replicasets_are_distinguished_from_their_deployments(cls, body, suffix):
    storage = cls()

    assert storage.mark_key('fn', body=body) == f'fn{suffix}'
    assert list(storage.make_keys('fn', body=body)) == [f'{PREFIX}/fn{suffix}']
    assert list(storage.make_keys('fn')) == [f'{PREFIX}/fn']


@pytest.mark.guarantee('NEW-122')
def test_prefixes_are_not_empty(cls):
    with pytest.raises(ValueError, match='cannot be empty'):
        cls(prefix='')


@pytest.mark.guarantee('NEW-122')
def test_long_prefixes_are_warned_about(cls):
    with pytest.warns(UserWarning, match='190 characters'):
        cls(prefix='x' * 190)

    assert cls(prefix='x' * 189).prefix == 'x' * 189


def test_parameters_are_attributes(cls):
    storage = cls(prefix='my-op.example.com', v1=False)

    assert (storage.prefix, storage.v1) == ('my-op.example.com', False)
