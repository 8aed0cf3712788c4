"""
K8s-events as users order them: what is reported, about what, and by which operator.
"""

import concurrent.futures
import contextvars
import inspect
import logging
import threading

import kubernetes
import pykube
import pytest

import kopf
from kopf._core.engines.events import posting

BODY = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'spec': {'secret': 'xyz'},
    'metadata': {'name': 'obj', 'namespace': 'ns', 'uid': 'u', 'labels': {'x': 'y'}},
}
REF = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'name': 'obj',
    'namespace': 'ns',
    'uid': 'u',
}


class FakePoster:
    """Only remembers what it is told to post."""

    def __init__(self):
        self.settings = kopf.OperatorSettings()
        self.reports = []

    def put(self, ref, **fields):
        self.reports.append({'ref': ref, **fields})

    @property
    def texts(self):
        return [(report['type'], report['reason'], report['message']) for report in self.reports]


@pytest.fixture
def poster():
    poster = FakePoster()
    with posting.attached(poster):
        yield poster


@pytest.fixture
def listening(poster):
    """The log messages about objects are posted too."""
    poster.settings.posting.loggers = True
    with posting.listening(poster):
        yield


@pytest.fixture
def object_logger(poster, caplog):
    caplog.set_level(1, logger='kopf.objects')
    return kopf.ObjectLogger(body=BODY, settings=poster.settings)


@pytest.mark.guarantee('NEW-189')
@pytest.mark.parametrize(
    'fn, expected',
    [
        (kopf.event, '(objs, *, type, reason, message="", backoffs=None)'),
        (kopf.info, '(objs, *, reason, message="", backoffs=None)'),
        (kopf.warn, '(objs, *, reason, message="", backoffs=None)'),
        (kopf.exception, '(objs, *, reason="", message="", exc=None, backoffs=None)'),
    ],
)
def test_signatures(fn, expected):
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(fn).parameters.values()
    ]

    assert str(inspect.Signature(bare)) == expected.replace('"', "'")


@pytest.mark.guarantee('EVT-001', 'EVT-008')
def test_any_type_and_reason_are_reported_as_they_are(poster):
    assert kopf.event(BODY, type='SomeType', reason='Some reason', message='Some message') is None

    assert poster.texts == [('SomeType', 'Some reason', 'Some message')]
    assert poster.reports[0]['ref'] == REF


@pytest.mark.guarantee('EVT-002', 'EVT-003')
@pytest.mark.parametrize('fn, type', [(kopf.info, 'Normal'), (kopf.warn, 'Warning')])
def test_shortcuts_have_types_of_their_own(poster, fn, type):
    assert fn(BODY, reason='R', message='M') is None
    assert fn(BODY, reason='R') is None

    assert poster.texts == [(type, 'R', 'M'), (type, 'R', '')]


@pytest.mark.guarantee('EVT-004', 'EVT-005')
@pytest.mark.parametrize(
    'kwargs, expected',
    [
        pytest.param(
            {'reason': 'SomeReason', 'message': 'Some exception:'},
            ('Error', 'SomeReason', 'Some exception: Exception text.'),
            id='all',
        ),
        pytest.param({}, ('Error', 'RuntimeError', 'Exception text.'), id='nothing'),
        pytest.param(
            {'exc': ValueError('Another one.')},
            ('Error', 'ValueError', 'Another one.'),
            id='another',
        ),
        pytest.param(
            {'exc': ValueError(), 'message': 'Bad:'},
            ('Error', 'ValueError', 'Bad: ValueError'),
            id='no-text',
        ),
    ],
)
def test_exceptions_are_reported_with_their_texts(poster, kwargs, expected):
    try:
        raise RuntimeError('Exception text.')
    except RuntimeError:
        assert kopf.exception(BODY, **kwargs) is None

    assert poster.texts == [expected]


@pytest.mark.guarantee('EVT-004')
def test_exception_with_no_exception_is_the_plain_message(poster):
    kopf.exception(BODY, reason='R', message='M')

    assert poster.texts == [('Error', 'R', 'M')]


@pytest.mark.guarantee('EVT-006', 'EVT-010')
@pytest.mark.parametrize(
    'objs, names',
    [
        pytest.param(BODY, ['obj'], id='dict'),
        pytest.param(kopf.Body(BODY), ['obj'], id='body'),
        pytest.param([BODY, {'metadata': {'name': 'x'}}], ['obj', 'x'], id='list'),
        pytest.param((BODY, BODY), ['obj', 'obj'], id='tuple'),
        pytest.param(iter([kopf.Body(BODY)]), ['obj'], id='iterator'),
        pytest.param([], [], id='none'),
        pytest.param(kopf.build_object_reference(BODY), ['obj'], id='reference'),
        pytest.param(pykube.Pod(None, {'metadata': {'name': 'x'}}), ['x'], id='pykube'),
        pytest.param(
            kubernetes.client.V1Pod(metadata=kubernetes.client.V1ObjectMeta(name='x')),
            ['x'],
            id='kubernetes',
        ),
    ],
)
def test_each_object_is_reported(poster, objs, names):
    kopf.info(objs, reason='R')

    assert [report['ref']['name'] for report in poster.reports] == names


@pytest.mark.parametrize('objs', [None, 123, 'obj', [None]], ids=repr)
def test_other_things_are_not_objects(poster, objs):
    with pytest.raises(TypeError, match='K8s-events are posted about objects as dicts'):
        kopf.info(objs, reason='R')


@pytest.mark.guarantee('EVT-011', 'NEW-197')
@pytest.mark.parametrize(
    'fields, expected',
    [
        pytest.param({}, {}, id='absent'),
        pytest.param(
            {'api_version': 'v1', 'kind': 'Pod'}, {'apiVersion': 'v1', 'kind': 'Pod'}, id='present'
        ),
    ],
)
def test_dicts_of_the_official_client_are_accepted(poster, fields, expected):
    meta = kubernetes.client.V1ObjectMeta(
        name='pod', namespace='ns', uid='u', creation_timestamp='2020-01-01'
    )
    pod = kubernetes.client.V1Pod(metadata=meta, **fields).to_dict()

    kopf.info(pod, reason='R')

    assert [report['ref'] for report in poster.reports] == [
        {'name': 'pod', 'namespace': 'ns', 'uid': 'u', **expected}
    ]


@pytest.mark.guarantee('NEW-190')
@pytest.mark.parametrize('backoffs, expected', [(None, [5, 6]), (3, 3), ([1, 2], [1, 2]), ([], [])])
def test_backoffs_are_those_given_or_the_default_ones(poster, backoffs, expected):
    poster.settings.posting.default_backoffs = [5, 6]

    kopf.info(BODY, reason='R', backoffs=backoffs)

    assert poster.reports[0]['backoffs'] == expected


def test_nonsense_for_backoffs_is_an_error(poster):
    with pytest.raises(TypeError, match='backoffs='):
        kopf.info(BODY, reason='R', backoffs='1,2')


@pytest.mark.guarantee('CFG-016', 'CFG-018', 'EVT-015')
def test_nothing_is_reported_if_disabled(poster, listening, object_logger):
    poster.settings.posting.enabled = False

    kopf.event(BODY, type='SomeType', reason='R')
    kopf.info(BODY, reason='R')
    kopf.warn(BODY, reason='R')
    kopf.exception(BODY, reason='R')
    object_logger.error('Hello!')

    assert poster.reports == []


@pytest.mark.guarantee('CFG-018', 'EVT-015')
@pytest.mark.parametrize(
    'level, expected',
    [
        (logging.DEBUG, ['Debug', 'Normal', 'Warning', 'Error', 'Fatal', 'Other']),
        (logging.INFO, ['Normal', 'Warning', 'Error', 'Fatal', 'Other']),
        (logging.WARNING, ['Warning', 'Error', 'Fatal', 'Other']),
        (logging.ERROR, ['Error', 'Fatal', 'Other']),
        (logging.CRITICAL, ['Fatal', 'Other']),
    ],
)
def test_known_types_below_the_level_are_not_reported(poster, level, expected):
    poster.settings.posting.level = level

    for type in ['Debug', 'Normal', 'Warning', 'Error', 'Fatal', 'Other']:
        kopf.event(BODY, type=type, reason='R')

    assert [type for type, _, _ in poster.texts] == expected


def test_reports_outside_of_operators_are_errors():
    with pytest.raises(LookupError, match='only for a running operator, and there is none'):
        kopf.info(BODY, reason='R')


@pytest.mark.guarantee('EMB-025', 'EVT-007', 'NEW-196')
def test_operator_is_that_of_the_task_or_thread():
    one, two = FakePoster(), FakePoster()
    with posting.attached(one):
        context = contextvars.copy_context()
        with posting.attached(two), concurrent.futures.ThreadPoolExecutor() as executor:
            executor.submit(context.run, kopf.info, BODY, reason='from one').result()
            kopf.info(BODY, reason='from two')
            stray = executor.submit(kopf.info, BODY, reason='from nobody')
            with pytest.raises(LookupError, match='it is not clear for which one of several'):
                stray.result()

    assert [reason for _, reason, _ in one.texts] == ['from one']
    assert [reason for _, reason, _ in two.texts] == ['from two']


def test_stray_threads_use_the_only_operator(poster):
    thread = threading.Thread(target=kopf.info, args=(BODY,), kwargs={'reason': 'R'})
    thread.start()
    thread.join()

    assert poster.texts == [('Normal', 'R', '')]


@pytest.mark.guarantee('NEW-186', 'NEW-187', 'KWA-031')
def test_log_messages_are_not_reported_by_default(poster, object_logger):
    handlers = list(logging.getLogger('kopf.objects').handlers)

    with posting.listening(poster):
        object_logger.error('Hello!')
        assert logging.getLogger('kopf.objects').handlers == handlers

    assert poster.settings.posting.loggers is False
    assert poster.reports == []


@pytest.mark.guarantee('NEW-186', 'NEW-188', 'NEW-191', 'NEW-200', 'EVT-016', 'CFG-017')
@pytest.mark.parametrize(
    'level, expected',
    [
        pytest.param(
            logging.INFO, ['Normal', 'Normal', 'Warning', 'Error', 'Fatal', 'Fatal'], id='info'
        ),
        pytest.param(
            5,
            ['Debug', 'Debug', 'Debug', 'Normal', 'Normal', 'Warning', 'Error', 'Fatal', 'Fatal'],
            id='all',
        ),
        pytest.param(logging.ERROR, ['Error', 'Fatal', 'Fatal'], id='error'),
    ],
)
def test_log_messages_are_reported_by_levels(poster, listening, object_logger, level, expected):
    poster.settings.posting.level = level
    poster.settings.posting.logging_backoffs = [7]
    levels = [
        5,
        logging.DEBUG,
        15,
        logging.INFO,
        25,
        logging.WARNING,
        logging.ERROR,
        logging.CRITICAL,
        60,
    ]

    for number in levels:
        object_logger.log(number, 'Hello, %s!', 'world')

    assert poster.texts == [(type, 'Logging', 'Hello, world!') for type in expected]
    assert all(report['ref'] == REF and report['backoffs'] == [7] for report in poster.reports)


@pytest.mark.guarantee('ERR-002')
def test_errors_in_the_log_are_reported_without_their_origins(poster, listening, object_logger):
    try:
        raise ValueError('The reason of it.')
    except ValueError:
        object_logger.exception('It has failed.')

    assert poster.texts == [('Error', 'Logging', 'It has failed. ValueError: The reason of it.')]


@pytest.mark.guarantee('FND-043')
def test_errors_are_not_reported_twice_in_one_message(poster, listening, object_logger):
    try:
        raise ValueError('The reason of it.')
    except ValueError as error:
        object_logger.exception('It has failed: %s', error)

    assert poster.texts == [('Error', 'Logging', 'It has failed: The reason of it.')]


@pytest.mark.guarantee('FND-044')
@pytest.mark.parametrize('level', [logging.INFO, logging.ERROR])
def test_messages_can_be_reported_as_of_another_level(poster, listening, object_logger, level):
    poster.settings.posting.level = level

    object_logger.warning('Not yet.', extra={'k8s_level': logging.ERROR})

    assert poster.texts == [('Error', 'Logging', 'Not yet.')]


@pytest.mark.guarantee('KWA-032', 'EVT-019')
def test_local_messages_are_not_reported(poster, listening, caplog):
    caplog.set_level(logging.DEBUG)

    kopf.LocalObjectLogger(body=BODY, settings=poster.settings).error('Hello!')
    logging.getLogger('kopf.objects').error('About nothing.')

    assert caplog.messages == ['Hello!', 'About nothing.']
    assert poster.reports == []


@pytest.mark.guarantee('NEW-201')
def test_messages_that_users_filter_out_are_not_reported(poster, listening, object_logger):
    def refuse(record):
        return 'secret' not in record.getMessage()

    logger = logging.getLogger('kopf.objects')
    logger.addFilter(refuse)
    try:
        object_logger.info('a secret message')
        object_logger.info('a public message')
    finally:
        logger.removeFilter(refuse)

    assert [message for _, _, message in poster.texts] == ['a public message']


def test_log_messages_are_reported_by_their_own_operators(listening, object_logger, poster):
    others = [FakePoster(), FakePoster()]
    others[0].settings.posting.loggers = True
    others[1].settings = poster.settings
    for other in others:
        context = contextvars.copy_context()

        def log(other=other):
            with posting.attached(other), posting.listening(other):
                kopf.ObjectLogger(body=BODY, settings=other.settings).info('from another')

        context.run(log)

    object_logger.info('from the first')

    assert [message for _, _, message in poster.texts] == ['from the first']
    assert [[message for _, _, message in other.texts] for other in others] == [
        ['from another'],
        ['from another'],
    ]


def test_logging_is_left_as_it_was(poster, object_logger):
    poster.settings.posting.loggers = True
    before = list(logging.getLogger('kopf.objects').handlers)

    with posting.listening(poster):
        assert len(logging.getLogger('kopf.objects').handlers) == len(before) + 1
    object_logger.info('Hello!')

    assert logging.getLogger('kopf.objects').handlers == before
    assert poster.reports == []


def test_wrong_log_messages_fail_nobody(poster, listening, object_logger, monkeypatch):
    monkeypatch.setattr(logging, 'raiseExceptions', False)
    monkeypatch.setattr(logging.getLogger('kopf.objects'), 'propagate', False)

    object_logger.info('Hello, %s and %s!', 'world')

    assert poster.reports == []


def test_nothing_but_identifiers_is_taken_of_the_objects(poster, listening):
    secret = kopf.Body(
        {
            'apiVersion': 'v1',
            'kind': 'Secret',
            'data': {'password': 'cGFzc3dvcmQ='},
            'metadata': {
                'name': 's',
                'namespace': 'ns',
                'uid': 'u',
                'annotations': {'a': 'cGFzc3dvcmQ='},
            },
        }
    )

    kopf.info(secret, reason='R', message=f'It is {secret}.')
    kopf.ObjectLogger(body=secret, settings=poster.settings).error('It is %s.', secret)

    assert 'cGFzc3dvcmQ=' not in repr(poster.reports)
    assert [report['ref'] for report in poster.reports] == [
        {'apiVersion': 'v1', 'kind': 'Secret', 'name': 's', 'namespace': 'ns', 'uid': 'u'}
    ] * 2
