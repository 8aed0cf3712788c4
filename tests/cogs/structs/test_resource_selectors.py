"""
Selectors of resources: how they are written, and what they match.
"""

import pytest

from kopf._cogs.structs import references, selectors

EVERYTHING = references.EVERYTHING
PODS = references.Resource('', 'v1', 'pods', 'Pod', 'pod', frozenset({'po'}))
METRICS = references.Resource('metrics.k8s.io', 'v1beta1', 'pods', 'PodMetrics')
EXAMPLES = references.Resource(
    'kopf.dev', 'v1', 'kopfexamples', 'KopfExample', 'kopfexample', frozenset({'kex'})
)
OLD_EXAMPLES = references.Resource(
    'kopf.dev', 'v1beta1', 'kopfexamples', 'KopfExample', preferred=False
)
EVENTS = references.Resource('', 'v1', 'events', 'Event')
NEW_EVENTS = references.Resource('events.k8s.io', 'v1', 'events', 'Event')
ALL = [PODS, METRICS, EXAMPLES, OLD_EXAMPLES, EVENTS, NEW_EVENTS]


def is_of_kopf(resource):
    return resource.group.startswith('kopf.')


@pytest.mark.parametrize(
    'notation, expected',
    [
        pytest.param(
            ('kopf.dev', 'v1', 'kopfexamples'), ('kopf.dev', 'v1', 'kopfexamples'), id='three'
        ),
        pytest.param(('', 'v1', 'pods'), ('', 'v1', 'pods'), id='core'),
        pytest.param(
            ('kopf.dev/v1', 'kopfexamples'),
            ('kopf.dev', 'v1', 'kopfexamples'),
            id='group-with-version',
        ),
        pytest.param(('kopf.dev', 'kopfexamples'), ('kopf.dev', None, 'kopfexamples'), id='group'),
        pytest.param(('v1', 'pods'), ('', 'v1', 'pods'), id='core-version'),
        pytest.param(
            'kopfexamples.kopf.dev', ('kopf.dev', None, 'kopfexamples'), id='dotted-group'
        ),
        pytest.param('deployments.apps', ('apps', None, 'deployments'), id='short-group'),
        pytest.param('pods.v1', ('', 'v1', 'pods'), id='dotted-version'),
        pytest.param(
            'pods.v1beta1.metrics.k8s.io',
            ('metrics.k8s.io', 'v1beta1', 'pods'),
            id='dotted-version-and-group',
        ),
        pytest.param('v1/pods', ('', 'v1', 'pods'), id='slashed-version'),
        pytest.param(
            'kopf.dev/kopfexamples', ('kopf.dev', None, 'kopfexamples'), id='slashed-group'
        ),
        pytest.param(
            'kopf.dev/v1/kopfexamples', ('kopf.dev', 'v1', 'kopfexamples'), id='slashed-all'
        ),
        pytest.param('pods', (None, None, 'pods'), id='name'),
        pytest.param(EVERYTHING, (None, None, EVERYTHING), id='everything'),
        pytest.param(
            ('kopf.dev', EVERYTHING), ('kopf.dev', None, EVERYTHING), id='everything-of-group'
        ),
        pytest.param(
            ('kopf.dev', 'v1', EVERYTHING),
            ('kopf.dev', 'v1', EVERYTHING),
            id='everything-of-version',
        ),
        pytest.param(is_of_kopf, (None, None, is_of_kopf), id='function'),
        pytest.param(selectors.Selector('g', 'v', 'n'), ('g', 'v', 'n'), id='selector'),
    ],
)
def test_notations_are_read(notation, expected):
    assert selectors.parse_selector(notation) == selectors.Selector(*expected)


@pytest.mark.parametrize(
    'notation',
    [
        None,
        123,
        '',
        (),
        ('pods',),
        ('', ''),
        ('a', 'b', 'c', 'd'),
        ('', '', 'pods'),
        ('', 'v1', None),
        (EVERYTHING, 'pods'),
        'v1/',
        '.v1',
        ['v1', 2],
        b'pods',
    ],
    ids=repr,
)
def test_what_is_not_a_notation_is_refused(notation):
    with pytest.raises(TypeError, match='Resources are selected by'):
        selectors.parse_selector(notation)


@pytest.mark.parametrize(
    'notation, expected',
    [
        pytest.param('pods', [PODS, METRICS], id='plural'),
        pytest.param('pod', [PODS], id='singular'),
        pytest.param('Pod', [PODS], id='kind'),
        pytest.param('po', [PODS], id='shortcut'),
        pytest.param('POD', [], id='other-case'),
        pytest.param('pods.v1', [PODS], id='core'),
        pytest.param('kopfexamples', [EXAMPLES], id='preferred-version'),
        pytest.param('kopfexamples.v1beta1.kopf.dev', [OLD_EXAMPLES], id='other-version'),
        pytest.param(('v1', 'events'), [EVENTS], id='events-by-name'),
        pytest.param(EVERYTHING, [PODS, METRICS, EXAMPLES], id='everything-but-events'),
        pytest.param(('kopf.dev', EVERYTHING), [EXAMPLES], id='everything-of-group'),
        pytest.param(
            ('kopf.dev', 'v1beta1', EVERYTHING), [OLD_EXAMPLES], id='everything-of-version'
        ),
        pytest.param(
            lambda resource: True, [PODS, METRICS, EXAMPLES, OLD_EXAMPLES], id='function-for-all'
        ),
        pytest.param(is_of_kopf, [EXAMPLES, OLD_EXAMPLES], id='function-for-some'),
    ],
)
def test_resources_are_matched(notation, expected):
    selector = selectors.parse_selector(notation)

    assert [resource for resource in ALL if selector.matches(resource)] == expected


@pytest.mark.parametrize(
    'selector, expected',
    [
        pytest.param(selectors.Selector(None, None, 'pods'), 'pods', id='name'),
        pytest.param(
            selectors.Selector('kopf.dev', 'v1', 'kopfexamples'),
            'kopfexamples.v1.kopf.dev',
            id='all',
        ),
        pytest.param(selectors.Selector('', 'v1', 'pods'), 'pods.v1', id='core'),
        pytest.param(
            selectors.Selector('kopf.dev', None, EVERYTHING),
            'kopf.EVERYTHING.kopf.dev',
            id='everything',
        ),
        pytest.param(selectors.Selector(kind='Pod'), 'kind=Pod', id='keyword'),
        pytest.param(
            selectors.Selector('kopf.dev', 'v1', plural='kopfexamples'),
            'kopfexamples.v1.kopf.dev',
            id='plural',
        ),
        pytest.param(
            selectors.Selector('kopf.dev', 'v1', category='all'),
            'category=all.v1.kopf.dev',
            id='category',
        ),
    ],
)
def test_selectors_are_shown_as_they_are_written(selector, expected):
    assert repr(selector) == expected


@pytest.mark.parametrize(
    'selector, expected',
    [
        pytest.param(selectors.Selector(name='pods'), False, id='name'),
        pytest.param(selectors.Selector(kind='Pod'), False, id='kind'),
        pytest.param(selectors.Selector(category='all'), True, id='category'),
        pytest.param(selectors.Selector(name=EVERYTHING), True, id='everything'),
        pytest.param(selectors.Selector(name=is_of_kopf), True, id='function'),
    ],
)
def test_selectors_tell_if_they_can_mean_several_resources(selector, expected):
    assert selector.is_multiple is expected
