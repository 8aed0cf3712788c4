"""
The settings of operators: their names, defaults and types, and the rules of the deprecated ones.
"""

import ast
import concurrent.futures
import dataclasses
import inspect
import itertools
import logging

import pytest

from kopf._cogs.configs import checks, connecting, diffbase, progress, settings

SECTIONS = [
    'process',
    'posting',
    'peering',
    'leadership',
    'watching',
    'queueing',
    'scanning',
    'admission',
    'execution',
    'background',
    'networking',
    'persistence',
    'breaker',
]
FIBONACCI = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610)

DEFAULTS = {
    'process': {'ultimate_exiting_timeout': 600},
    'posting': {
        'enabled': True,
        'loggers': False,
        'failures': True,
        'level': logging.INFO,
        'default_backoffs': (1, 1, 2, 3, 5, 8, 13, 21),
        'logging_backoffs': (1, 1, 2, 3, 5),
        'worker_limit': None,
        'idle_timeout': 1.0,
        'reporting_component': 'kopf',
        'reporting_instance': 'dev',
        'event_name_prefix': 'kopf-event-',
        'burst_limit': 25,
        'burst_interval': 300.0,
        'queue_limit': 1000,
        'exit_timeout': 2.0,
    },
    'leadership': {
        'name': None,
        'namespace': None,
        'lease_duration': 15.0,
        'renew_deadline': 10.0,
        'retry_period': 2.0,
        'standby': 'hot',
    },
    'peering': {
        'name': 'default',
        'stealth': False,
        'priority': 0,
        'lifetime': 60,
        'mandatory': False,
        'standalone': False,
        'clusterwide': False,
    },
    'watching': {
        'server_timeout': None,
        'client_timeout': None,
        'connect_timeout': None,
        'reconnect_backoff': 0.1,
        'inactivity_timeout': 70.0,
        'chunk_size': 500,
        'initial_streaming': False,
        'label_selectors': {},
        'field_selectors': {},
        'shard_selectors': {},
    },
    'queueing': {
        'worker_limit': None,
        'idle_timeout': 5.0,
        'exit_timeout': 2.0,
        'error_delays': FIBONACCI,
    },
    'scanning': {'disabled': False},
    'admission': {'server': None, 'managed': None},
    'execution': {'default_backoff': 60, 'blocking_limit': 5.0},
    'background': {
        'cancellation_polling': 60,
        'instant_exit_timeout': None,
        'instant_exit_zero_time_cycles': 10,
    },
    'networking': {
        'request_timeout': 300,
        'connect_timeout': None,
        'error_backoffs': (1, 1, 2, 3, 5, 8, 13, 21),
        'enforce_retry_after': False,
        'trust_env': False,
        'inflight_limit': 25,
        'rate_limit': None,
        'rate_burst': 20,
    },
    'persistence': {
        'finalizer': 'kopf.zalando.org/KopfFinalizerMarker',
        'secrets': 'values',
        'consistency_timeout': 5.0,
    },
    'breaker': {'limit': 10, 'window': 60.0, 'delay': 10.0, 'max_delay': 600.0},
}


@pytest.fixture
def operator_settings():
    return settings.OperatorSettings()


def list_fields(section):
    return {
        field.name: getattr(section, field.name)
        for field in dataclasses.fields(section)
        if not field.name.startswith('_')
    }


@pytest.mark.guarantee('NEW-008', 'CFG-001', 'CFG-043', 'CFG-051', 'CFG-053', 'CFG-054')
def test_sections_and_their_defaults(operator_settings):
    found = {
        field.name: list_fields(getattr(operator_settings, field.name))
        for field in dataclasses.fields(operator_settings)
    }

    assert isinstance(found['execution'].pop('executor'), concurrent.futures.ThreadPoolExecutor)
    assert isinstance(found['persistence'].pop('progress_storage'), progress.SmartProgressStorage)
    assert isinstance(
        found['persistence'].pop('diffbase_storage'), diffbase.AnnotationsDiffBaseStorage
    )
    assert list(found) == SECTIONS
    assert found == DEFAULTS


@pytest.mark.guarantee('CFG-001')
@pytest.mark.parametrize('name', SECTIONS)
def test_sections_are_given_by_keywords(operator_settings, name):
    section = getattr(operator_settings, name)

    given = settings.OperatorSettings(**{name: section})

    assert [key for key in SECTIONS if getattr(given, key) is getattr(operator_settings, key)] == [
        name
    ]


@pytest.mark.guarantee('CFG-002')
def test_operators_share_nothing():
    one, two = settings.OperatorSettings(), settings.OperatorSettings()

    one.watching.label_selectors['pods'] = 'a=b'
    one.networking.request_timeout = 5

    assert two.watching.label_selectors == {}
    assert two.networking.request_timeout == 300
    assert two.execution.executor is not one.execution.executor
    assert two.persistence.progress_storage is not one.persistence.progress_storage
    assert two.persistence.diffbase_storage is not one.persistence.diffbase_storage


@pytest.mark.parametrize(
    'section',
    [
        settings.ProcessSettings,
        settings.PostingSettings,
        settings.PeeringSettings,
        connecting.WatchingSettings,
        settings.QueueingSettings,
        connecting.ScanningSettings,
        settings.AdmissionSettings,
        settings.ExecutionSettings,
        settings.BackgroundSettings,
        connecting.NetworkingSettings,
        settings.PersistenceSettings,
    ],
)
def test_every_field_has_a_text(section):
    [definition] = ast.parse(inspect.getsource(section)).body
    following = itertools.pairwise(definition.body)
    described = {
        statement.target.id
        for statement, text in following
        if isinstance(statement, ast.AnnAssign) and is_text(text)
    }

    assert set(list_fields(section())) <= described


def is_text(statement):
    """Return whether the statement is nothing but a string."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)


@pytest.mark.guarantee('NEW-009')
def test_batching_is_the_former_name_of_queueing(operator_settings):
    with pytest.warns(DeprecationWarning, match=r'use settings\.queueing'):
        assert operator_settings.batching is operator_settings.queueing

    with pytest.raises(TypeError):
        settings.OperatorSettings(batching=settings.QueueingSettings())


@pytest.mark.guarantee('NEW-010')
def test_batch_window_has_no_effect_but_a_warning(operator_settings):
    with pytest.warns(DeprecationWarning, match='no effect'):
        assert operator_settings.queueing.batch_window == 0.1
    with pytest.warns(DeprecationWarning, match='no effect'):
        operator_settings.queueing.batch_window = 5.0
    with pytest.warns(DeprecationWarning, match='no effect'):
        assert operator_settings.queueing.batch_window == 5.0

    assert operator_settings.queueing == settings.QueueingSettings()


def test_namespaced_peering_is_the_inverse_of_the_clusterwide_one(operator_settings):
    peering = operator_settings.peering
    assert peering.namespaced is True

    peering.namespaced = False

    assert (peering.clusterwide, peering.namespaced) == (True, False)


@pytest.mark.guarantee('CFG-019', 'CFG-023')
def test_workers_of_the_executor_are_limited(operator_settings):
    execution = operator_settings.execution
    default = concurrent.futures.ThreadPoolExecutor()._max_workers
    assert execution.executor._max_workers == default
    assert execution.max_workers is None

    execution.max_workers = 7
    assert (execution.max_workers, execution.executor._max_workers) == (7, 7)

    execution.max_workers = None
    assert (execution.max_workers, execution.executor._max_workers) == (None, default)


@pytest.mark.parametrize('value', [0, -1])
def test_workers_are_at_least_one(operator_settings, value):
    with pytest.raises(ValueError, match='1 or more'):
        operator_settings.execution.max_workers = value

    assert operator_settings.execution.max_workers is None


def test_executors_with_no_limit_have_no_limit_of_workers(operator_settings):
    operator_settings.execution.executor = concurrent.futures.Executor()

    with pytest.raises(TypeError, match='Executor has none'):
        operator_settings.execution.max_workers = 7


class Endless:
    def __iter__(self):
        while True:
            yield 1


def test_defaults_are_correct(operator_settings):
    assert checks.check_settings(operator_settings) == []


def test_every_field_is_checked(operator_settings):
    fields = {name: set(list_fields(getattr(operator_settings, name))) for name in SECTIONS}

    assert {section: set(rules) for section, rules in checks.RULES.items()} == fields


@pytest.mark.parametrize(
    'path, value',
    [
        pytest.param('networking.request_timeout', None, id='no-timeout'),
        pytest.param('networking.error_backoffs', 1.5, id='one-backoff'),
        pytest.param('networking.error_backoffs', [], id='no-backoffs'),
        pytest.param('networking.error_backoffs', Endless(), id='endless-backoffs'),
        pytest.param('networking.error_backoffs', range(5), id='range'),
        pytest.param('networking.rate_limit', 0.5, id='slow-rate'),
        pytest.param('watching.chunk_size', None, id='no-pages'),
        pytest.param('watching.chunk_size', 0, id='server-pages'),
        pytest.param('watching.inactivity_timeout', 999999999, id='practically-disabled'),
        pytest.param('peering.priority', -5, id='negative-priority'),
        pytest.param('admission.server', lambda fn: None, id='any-server'),
    ],
)
def test_special_values_are_correct(operator_settings, path, value):
    section, name = path.split('.')
    setattr(getattr(operator_settings, section), name, value)

    assert checks.check_settings(operator_settings) == []


@pytest.mark.parametrize(
    'path, value, message',
    [
        pytest.param(
            'networking.request_timeout',
            '60',
            "'60'; accepted is a number of seconds above 0, or None",
            id='text',
        ),
        pytest.param('networking.request_timeout', -1, '-1; accepted is a number', id='negative'),
        pytest.param(
            'networking.request_timeout', float('nan'), 'nan; accepted is a number', id='nan'
        ),
        pytest.param(
            'networking.request_timeout', True, 'True; accepted is a number', id='flag-for-number'
        ),
        pytest.param(
            'networking.error_backoffs', [1, 'x'], "[1, 'x']; accepted is", id='wrong-backoff'
        ),
        pytest.param(
            'networking.error_backoffs', '123', "'123'; accepted is", id='backoffs-of-text'
        ),
        pytest.param(
            'networking.error_backoffs',
            iter([1, 2]),
            'of type list_iterator; accepted is',
            id='once-iterable',
        ),
        pytest.param('networking.error_backoffs', None, 'None; accepted is', id='none'),
        pytest.param(
            'networking.inflight_limit',
            0,
            '0; accepted is an integer, 1 or more, or None',
            id='zero-limit',
        ),
        pytest.param(
            'posting.enabled', 'no', "'no'; accepted is True or False", id='text-for-flag'
        ),
        pytest.param('posting.level', 'INFO', "'INFO'; accepted is an integer", id='level-by-name'),
        pytest.param(
            'watching.label_selectors',
            {'pods': 'a=b'},
            'of type dict; accepted is the mapping',
            id='replaced',
        ),
        pytest.param('persistence.finalizer', '', "''; accepted is a non-empty string", id='empty'),
        pytest.param(
            'persistence.progress_storage',
            None,
            'None; accepted is a kopf.ProgressStorage',
            id='no-progress',
        ),
        pytest.param(
            'persistence.diffbase_storage',
            progress.SmartProgressStorage(),
            'of type SmartProgressStorage; accepted is a kopf.DiffBaseStorage',
            id='wrong-storage',
        ),
        pytest.param(
            'execution.executor',
            None,
            'None; accepted is a concurrent.futures.Executor',
            id='no-executor',
        ),
    ],
)
def test_wrong_values_are_explained(operator_settings, path, value, message):
    section, name = path.split('.')
    setattr(getattr(operator_settings, section), name, value)

    problems = checks.check_settings(operator_settings)

    assert len(problems) == 1
    assert problems[0].startswith(f'settings.{path} is {message}')


def test_all_wrong_values_are_reported_together(operator_settings):
    operator_settings.networking.request_timeout = 'x'
    operator_settings.posting.enabled = 1
    operator_settings.peering.name = None
    operator_settings.watching.label_selectors['pods'] = 123

    problems = checks.check_settings(operator_settings)

    assert [problem.partition(' is ')[0] for problem in problems] == [
        'settings.posting.enabled',
        'settings.peering.name',
        'settings.watching.label_selectors',
        'settings.networking.request_timeout',
    ]
