"""
The resolution of selectors: which resources of the cluster are served for each of them, and which
are not.
"""

import dataclasses

import pytest

from kopf._cogs.clients import discovery
from kopf._cogs.structs import references, selectors
from kopf._core.reactor import resolution

VERBS = frozenset({'list', 'watch', 'patch'})


def resource(group, version, plural, **kwargs):
    singular = plural.removesuffix('s')
    return references.Resource(
        group,
        version,
        plural,
        **{
            'kind': singular.title(),
            'singular': singular,
            'namespaced': True,
            'verbs': VERBS,
            **kwargs,
        },
    )


PODS = resource('', 'v1', 'pods', shortcuts=frozenset({'po'}), categories=frozenset({'all'}))
METRICS = resource('metrics.k8s.io', 'v1beta1', 'pods', categories=frozenset({'all'}))
KEX1 = resource('kopf.dev', 'v1', 'kopfexamples', shortcuts=frozenset({'kex'}))
KEX2 = resource(
    'kopf.dev', 'v1beta1', 'kopfexamples', shortcuts=frozenset({'kex'}), preferred=False
)
OTHER_KEX = resource('example.com', 'v1', 'kopfexamples', shortcuts=frozenset({'kex'}))
EVENTS = resource('', 'v1', 'events')
NEW_EVENTS = resource('events.k8s.io', 'v1', 'events')
ALL = [PODS, METRICS, KEX1, KEX2, EVENTS, NEW_EVENTS]


def select(*args, **kwargs):
    return selectors.build_selector(*args, **kwargs)


def resolve(selector, resources, *, patching=False):
    return resolution.resolve(
        resolution.Demand([selector], [selector] if patching else []), resources
    )


@pytest.mark.parametrize(
    'selector, expected',
    [
        pytest.param(
            select('kopfexamples'),
            {KEX1},
            id='preferred-version',
            marks=pytest.mark.guarantee('RES-018'),
        ),
        pytest.param(
            select('kopf.dev', 'kopfexamples'),
            {KEX1},
            id='preferred-version-in-group',
            marks=pytest.mark.guarantee('RES-018'),
        ),
        pytest.param(
            select('kopf.dev', 'v1beta1', 'kopfexamples'),
            {KEX2},
            id='other-version',
            marks=pytest.mark.guarantee('RES-019'),
        ),
        pytest.param(
            select('kopfexamples.v1beta1.kopf.dev'),
            {KEX2},
            id='other-version-in-dotted-name',
            marks=pytest.mark.guarantee('RES-019', 'NEW-030'),
        ),
        pytest.param(
            select(kind='Kopfexample', version='v1beta1'),
            {KEX2},
            id='other-version-by-keywords',
            marks=pytest.mark.guarantee('RES-019'),
        ),
        pytest.param(
            select(category='all'),
            {PODS, METRICS},
            id='category',
            marks=pytest.mark.guarantee('RES-021'),
        ),
        pytest.param(
            select(references.EVERYTHING),
            {PODS, METRICS, KEX1},
            id='everything',
            marks=pytest.mark.guarantee('RES-021', 'NEW-025'),
        ),
        pytest.param(select('kopf.dev', references.EVERYTHING), {KEX1}, id='everything-in-group'),
        pytest.param(
            select('pods'), {PODS}, id='core-first', marks=pytest.mark.guarantee('RES-022')
        ),
        pytest.param(
            select(kind='Pod'),
            {PODS},
            id='core-first-by-kind',
            marks=pytest.mark.guarantee('RES-022'),
        ),
        pytest.param(
            select('pods.v1'),
            {PODS},
            id='core-by-version',
            marks=pytest.mark.guarantee('NEW-030', 'RES-022'),
        ),
        pytest.param(
            select('metrics.k8s.io', 'pods'),
            {METRICS},
            id='group',
            marks=pytest.mark.guarantee('RES-023'),
        ),
        pytest.param(select('v1', 'events'), {EVENTS}, id='named-events'),
        pytest.param(
            select('events'),
            {EVENTS},
            id='core-events-first',
            marks=pytest.mark.guarantee('RES-022'),
        ),
        pytest.param(
            select(lambda resource: True),
            {PODS, METRICS, KEX1, KEX2},
            id='function',
            marks=pytest.mark.guarantee('NEW-021', 'NEW-022', 'NEW-024', 'NEW-025'),
        ),
        pytest.param(
            select(lambda resource: resource.preferred and resource.group),
            {METRICS, KEX1},
            id='choosy-function',
            marks=pytest.mark.guarantee('NEW-021'),
        ),
    ],
)
def test_selectors_are_resolved(selector, expected):
    resolved = resolve(selector, ALL)

    assert resolved.resources == expected
    assert resolved.served == {selector: expected}
    assert not resolved.complaints


@pytest.mark.guarantee('RES-020')
@pytest.mark.parametrize(
    'selector', [select('kopfexamples'), select('kex'), select(plural='kopfexamples')]
)
def test_names_of_several_groups_are_not_served_with_a_complaint(selector):
    resolved = resolve(selector, [*ALL, OTHER_KEX])

    assert resolved.resources == set()
    assert resolved.ambiguous == {selector: {KEX1, OTHER_KEX}}
    (complaint,) = resolved.complaints
    assert complaint.values == (selector, 'kopfexamples.v1.example.com, kopfexamples.v1.kopf.dev')
    assert 'ambiguous' in complaint.text % complaint.values


def test_names_of_several_resources_in_one_group_are_served():
    another = resource('kopf.dev', 'v1', 'others', shortcuts=frozenset({'kex'}))

    assert resolve(select('kex'), [KEX1, KEX2, another]).resources == {KEX1, another}


def test_selectors_do_not_affect_each_other():
    vague, exact, pods, metrics = (
        select('kopfexamples'),
        select('kopf.dev', 'kopfexamples'),
        select('pods.v1'),
        select('metrics.k8s.io', 'pods'),
    )

    resolved = resolution.resolve(
        resolution.Demand([vague, exact, pods, metrics]), [*ALL, OTHER_KEX]
    )

    assert resolved.served == {exact: {KEX1}, pods: {PODS}, metrics: {METRICS}}
    assert resolved.select_selectors(KEX1) == {exact}
    assert resolved.select_selectors(METRICS) == {metrics}


def test_resources_are_not_handled_by_the_handlers_for_their_namesakes_of_the_core():
    name, group = select('pods'), select('metrics.k8s.io', 'pods')

    resolved = resolution.resolve(resolution.Demand([name, group]), ALL)

    assert name.matches(METRICS)
    assert resolved.select_selectors(METRICS) == {group}
    assert resolved.select_selectors(PODS) == {name}


@pytest.mark.guarantee('NEW-031')
@pytest.mark.parametrize(
    'selector',
    [
        select('unknown'),
        select('Pods'),
        select('example.com', 'kopfexamples'),
        select('kopf.dev', 'v2', 'kopfexamples'),
        select('kopf.dev', 'v2', references.EVERYTHING),
        select(lambda resource: False),
    ],
)
def test_absent_resources_are_complained_about(selector):
    resolved = resolve(selector, ALL)

    assert (resolved.resources, resolved.unresolved) == (set(), {selector})
    (complaint,) = resolved.complaints
    assert complaint.values == (selector,)


@pytest.mark.guarantee('NEW-031')
@pytest.mark.parametrize('verbs', [{'list'}, {'watch'}, {'get', 'patch'}, set()])
def test_unwatchable_resources_are_not_served_with_a_complaint(verbs):
    unwatchable = dataclasses.replace(KEX1, verbs=frozenset(verbs))
    selector = select(references.EVERYTHING)

    resolved = resolve(selector, [PODS, unwatchable])

    assert resolved.resources == {PODS}
    assert resolved.unwatchable == {selector: {KEX1}}
    (complaint,) = resolved.complaints
    assert complaint.values == (selector, 'kopfexamples.v1.kopf.dev')


@pytest.mark.guarantee('NEW-031')
def test_unpatchable_resources_are_served_only_if_they_are_only_looked_at():
    unpatchable = dataclasses.replace(KEX1, verbs=frozenset({'list', 'watch'}))
    selector = select('kopfexamples')

    assert resolve(selector, [unpatchable]).resources == {KEX1}
    resolved = resolve(selector, [unpatchable], patching=True)
    assert resolved.resources == set()
    assert resolved.unpatchable == {selector: {KEX1}}
    assert len(resolved.complaints) == 1


@pytest.mark.guarantee('NEW-031')
def test_unpatchable_resources_are_not_served_for_anyone_if_someone_patches():
    unpatchable = dataclasses.replace(KEX1, verbs=frozenset({'list', 'watch'}))
    looking, patching, unrelated = select('kopfexamples'), select('kex'), select('pods')

    resolved = resolution.resolve(
        resolution.Demand([looking, patching, unrelated], [patching, unrelated]),
        [PODS, unpatchable],
    )

    assert resolved.served == {unrelated: {PODS}}


@pytest.mark.guarantee('ADM-046')
def test_nothing_is_needed_of_resources_that_are_only_reviewed():
    reviewable = dataclasses.replace(KEX1, verbs=frozenset({'create'}))
    selector, pods = select('kopfexamples'), select('pods')

    resolved = resolution.resolve(
        resolution.Demand([pods], reviewing=[selector]), [PODS, reviewable]
    )

    assert resolved.served == {pods: {PODS}}
    assert resolved.reviewed == {selector: {KEX1}}
    assert resolved.all_resources == {PODS, KEX1}
    assert resolved.complaints == set()


def test_resources_that_cannot_be_watched_are_reviewed_nevertheless():
    unwatchable = dataclasses.replace(KEX1, verbs=frozenset({'create'}))
    selector = select('kopfexamples')

    resolved = resolution.resolve(
        resolution.Demand([selector], reviewing=[selector]), [unwatchable]
    )

    assert (resolved.served, resolved.reviewed) == ({}, {selector: {KEX1}})
    assert resolved.unwatchable == {selector: {KEX1}}


def test_unclear_selectors_of_reviews_are_complained_about():
    absent, ambiguous = select('absent'), select('kopfexamples')

    resolved = resolution.resolve(
        resolution.Demand(reviewing=[absent, ambiguous]), [*ALL, OTHER_KEX]
    )

    assert resolved.reviewed == {}
    assert len(resolved.complaints) == 2


def test_failing_functions_affect_nobody_else():
    selector, pods = select(lambda resource: resource.kind.unknown), select('pods')

    resolved = resolution.resolve(resolution.Demand([selector, pods]), ALL)

    assert resolved.served == {pods: {PODS}}
    (complaint,) = resolved.complaints
    assert 'AttributeError' in complaint.text % complaint.values


@pytest.mark.parametrize(
    'asked, expected',
    [
        pytest.param([], set(), id='nothing'),
        pytest.param(
            [select('v1', 'pods'), select('apps', 'deployments')],
            {'', 'apps'},
            id='groups',
            marks=pytest.mark.guarantee('RES-024'),
        ),
        pytest.param(
            [select('kopf.dev', references.EVERYTHING)], {'kopf.dev'}, id='everything-in-group'
        ),
        pytest.param(
            [select('v1', 'pods'), select('kopfexamples')],
            None,
            id='name',
            marks=pytest.mark.guarantee('RES-025'),
        ),
        pytest.param(
            [select(category='all')], None, id='category', marks=pytest.mark.guarantee('RES-025')
        ),
        pytest.param(
            [select(references.EVERYTHING)],
            None,
            id='everything',
            marks=pytest.mark.guarantee('RES-025'),
        ),
        pytest.param(
            [select(lambda resource: True)],
            None,
            id='function',
            marks=pytest.mark.guarantee('NEW-026'),
        ),
        pytest.param(
            [select(lambda resource: True, group='apps')], {'apps'}, id='function-in-group'
        ),
    ],
)
def test_only_the_groups_in_question_are_scanned(asked, expected):
    assert resolution.select_groups(asked) == expected


KEX_V1, KEX_V1BETA1 = (
    discovery.GroupVersion('kopf.dev', 'v1'),
    discovery.GroupVersion('kopf.dev', 'v1beta1'),
)


@pytest.mark.parametrize(
    'catalog, expected',
    [
        pytest.param(discovery.Catalog([PODS]), [PODS], id='certainly-gone'),
        pytest.param(discovery.Catalog([PODS], [KEX_V1]), [PODS, KEX1], id='doubtful'),
        pytest.param(
            discovery.Catalog([PODS, OTHER_KEX], [KEX_V1BETA1]),
            [PODS, OTHER_KEX, KEX2],
            id='new-and-doubtful',
        ),
        pytest.param(
            discovery.Catalog([PODS, KEX1], [KEX_V1]), [PODS, KEX1], id='outdated-but-told'
        ),
        pytest.param(
            discovery.Catalog([PODS], absent=['/apis']), [PODS, KEX1, KEX2], id='no-groups'
        ),
        pytest.param(discovery.Catalog([KEX1], absent=['/api']), [KEX1, PODS], id='no-core'),
    ],
)
def test_known_resources_are_kept_while_there_are_doubts(catalog, expected):
    assert resolution.update_resources([PODS, KEX1, KEX2], catalog) == expected


def test_told_resources_replace_the_known_ones():
    changed = dataclasses.replace(KEX1, kind='Changed')

    (updated,) = resolution.update_resources([KEX1], discovery.Catalog([changed], [KEX_V1]))

    assert updated.kind == 'Changed'
