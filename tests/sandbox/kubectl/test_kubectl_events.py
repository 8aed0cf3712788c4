"""
kubectl events and get events: what has happened to the objects.
"""

import re

import kubectls
import pytest
from kubectls import GROUP

pytestmark = pytest.mark.slow

AGO = r'\d+y\d+d'
HEADERS = ['LAST SEEN', 'TYPE', 'REASON', 'OBJECT', 'MESSAGE']
TIME = '2020-01-01T00:00:00Z'


@pytest.fixture
def build_event(namespace):
    """Builds an event about a widget."""

    def build_event(name, **fields):
        involved = {
            'apiVersion': f'{GROUP}/v1',
            'kind': 'Widget',
            'name': 'one',
            'namespace': namespace,
        }
        body = {
            'involvedObject': involved,
            'type': 'Normal',
            'reason': 'Told',
            'message': 'As told.',
            'count': 3,
            'source': {'component': 'teller'},
            'firstTimestamp': TIME,
            'lastTimestamp': TIME,
            **fields,
        }
        return kubectls.build('Event', name, **body)

    return build_event


@pytest.fixture
def pod_event(namespace):
    """An event of the newer kind, about a pod."""
    return kubectls.build(
        'Event',
        'pod-event',
        'events.k8s.io/v1',
        eventTime='2020-01-01T00:00:00.000000Z',
        type='Warning',
        regarding={'apiVersion': 'v1', 'kind': 'Pod', 'name': 'one', 'namespace': namespace},
        action='Sleeping',
        reason='Slept',
        note='Too long.',
        reportingController=f'{GROUP}/sleeper',
        reportingInstance='first',
    )


@pytest.fixture
def events(make, build_event, pod_event):
    make(build_event('widget-event'), pod_event)


@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param(
            '',
            [
                ['Normal', 'Told', 'Widget/one', 'As told.'],
                ['Warning', 'Slept', 'Pod/one', 'Too long.'],
            ],
            id='all',
        ),
        pytest.param(
            '--types=Warning', [['Warning', 'Slept', 'Pod/one', 'Too long.']], id='by-type'
        ),
        pytest.param(
            '--for=pod/one', [['Warning', 'Slept', 'Pod/one', 'Too long.']], id='by-object'
        ),
        pytest.param(
            f'--for=widget.v1.{GROUP}/one',
            [['Normal', 'Told', 'Widget/one', 'As told.']],
            id='by-custom-object',
        ),
    ],
)
def test_events_are_shown(kubectl, events, options, expected):
    run = kubectl(f'events {options}')

    headers, *rows = run.rows
    assert (run.code, run.err, headers) == (0, '', HEADERS)
    assert sorted(row[1:] for row in rows) == expected


def test_repeated_events_are_counted(kubectl, make, build_event):
    make(build_event('widget-event'))

    seen = kubectl('events --no-headers').rows[0][0]

    assert re.fullmatch(rf'{AGO} \(x3 over {AGO}\)', seen)


def test_events_are_shown_as_resources(kubectl, events):
    rows = kubectl('get events -o wide').rows

    assert rows[0] == [
        'LAST SEEN',
        'TYPE',
        'REASON',
        'OBJECT',
        'SUBOBJECT',
        'SOURCE',
        'MESSAGE',
        'FIRST SEEN',
        'COUNT',
        'NAME',
    ]
    assert sorted([*row[1:6], *row[7:]] for row in rows[1:]) == [
        ['Normal', 'Told', 'widget/one', 'teller', 'As told.', '3', 'widget-event'],
        ['Warning', 'Slept', 'pod/one', f'{GROUP}/sleeper, first', 'Too long.', '1', 'pod-event'],
    ]


@pytest.mark.parametrize('resource', ['events', 'events.events.k8s.io'])
@pytest.mark.parametrize(
    'selector, expected',
    [
        pytest.param('reason=Slept', ['pod-event'], id='reason'),
        pytest.param('type!=Warning', ['widget-event'], id='type'),
    ],
)
def test_events_are_selected_by_fields(kubectl, events, resource, selector, expected):
    run = kubectl(
        f"get {resource} --field-selector={selector} -o jsonpath='{{.items[*].metadata.name}}'"
    )

    assert run.out.split() == expected


def test_events_are_selected_by_their_objects(kubectl, events):
    run = kubectl(
        'get events --field-selector=involvedObject.kind=Widget,involvedObject.name=one -o name'
    )

    assert run.out == 'event/widget-event\n'


@pytest.mark.parametrize(
    'body',
    [
        pytest.param(kubectls.build_widget(), id='custom'),
        pytest.param(kubectls.build_pod(), id='built-in'),
    ],
)
def test_events_are_shown_with_the_objects(kubectl, make, build_event, namespace, body):
    made = make(body)
    about = {
        'apiVersion': body['apiVersion'],
        'kind': body['kind'],
        'namespace': namespace,
        'name': 'one',
        'uid': made['metadata']['uid'],
    }
    make(build_event('about-it', involvedObject=about), build_event('about-another', reason='Else'))

    run = kubectl(f'describe {body["kind"].lower()} one')

    headline, headers, _, row = run.rows[-4:]
    assert headline == ['Events:']
    assert headers == ['Type', 'Reason', 'Age', 'From', 'Message']
    assert [*row[:2], *row[3:]] == ['Normal', 'Told', 'teller', 'As told.']


def test_events_are_watched(kubectl, make, build_event):
    make(build_event('first'))

    with kubectl.start('events -w') as watch:
        assert [row[1:] for row in watch.take(2)] == [
            HEADERS[1:],
            ['Normal', 'Told', 'Widget/one', 'As told.'],
        ]
        make(build_event('second', reason='Stopped', type='Warning'))
        assert [row[1:] for row in watch.take(1)] == [
            ['Warning', 'Stopped', 'Widget/one', 'As told.']
        ]
