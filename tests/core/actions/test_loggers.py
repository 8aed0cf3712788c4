"""
Loggers of objects, and how their messages look on the console.
"""

import datetime
import io
import json
import logging
import sys

import pytest

import kopf
from kopf._cogs.aiokits import clocks
from kopf._cogs.configs import settings
from kopf._cogs.structs import objects
from kopf._core.actions import execution, jsonlogs, loggers, progression
from kopf._core.intents import causes

RAW = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'spec': {'x': 'y'},
    'metadata': {
        'name': 'kopf-example-1',
        'namespace': 'default',
        'uid': 'uid-1',
        'labels': {'a': 'b'},
    },
}
REF = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'name': 'kopf-example-1',
    'uid': 'uid-1',
    'namespace': 'default',
}


@pytest.fixture(autouse=True)
def restored_logging():
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def console(capsys):
    """What is shown, once asked for."""
    return lambda: capsys.readouterr().err


@pytest.fixture
def operator_settings():
    return settings.OperatorSettings()


@pytest.fixture
def object_logger(operator_settings):
    return loggers.ObjectLogger(body=objects.Body(RAW), settings=operator_settings)


def make_record(name='some.logger', level=logging.INFO, **extra):
    record = logging.LogRecord(name, level, 'file.py', 123, 'Hello, %s!', ('world',), None)
    record.__dict__.update(extra)
    return record


@pytest.mark.guarantee('CFG-007')
def test_formats_are_those_of_the_reference():
    assert {item.name: item.value for item in loggers.LogFormat} == {
        'PLAIN': '%(message)s',
        'FULL': '[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s',
        'JSON': '-json-',
    }


@pytest.mark.guarantee('KWA-032', 'EVT-017', 'EVT-019')
def test_both_loggers_are_adapters_and_the_local_one_is_a_special_case():
    assert issubclass(loggers.ObjectLogger, logging.LoggerAdapter)
    assert issubclass(loggers.LocalObjectLogger, loggers.ObjectLogger)


@pytest.mark.guarantee('WLD-016', 'NEW-201', 'EVT-020', 'EVT-019')
@pytest.mark.parametrize(
    'cls, skipped',
    [
        pytest.param(loggers.ObjectLogger, False, id='posted'),
        pytest.param(loggers.LocalObjectLogger, True, id='local'),
    ],
)
def test_records_carry_the_object_and_the_settings(caplog, operator_settings, cls, skipped):
    logger = cls(body=objects.Body(RAW), settings=operator_settings)

    logger.warning('Hello, %s!', 'world')

    (record,) = caplog.records
    assert record.name == 'kopf.objects'
    assert record.getMessage() == 'Hello, world!'
    assert record.k8s_ref == REF
    assert record.k8s_skip is skipped
    assert record.settings is operator_settings
    assert record.filename == 'test_loggers.py'


@pytest.mark.guarantee('NEW-201')
def test_messages_of_objects_can_be_filtered_by_standard_filters(caplog, object_logger):
    def refuse(record):
        return 'secret' not in record.getMessage()

    loggers.objects_logger.addFilter(refuse)
    try:
        object_logger.warning('a secret message')
        object_logger.warning('a public message')
    finally:
        loggers.objects_logger.removeFilter(refuse)

    assert caplog.messages == ['a public message']


@pytest.mark.guarantee('EVT-018')
@pytest.mark.parametrize('is_used_before', [True, False], ids=['used', 'unused'])
def test_identifiers_are_of_the_moment_of_creation(caplog, operator_settings, is_used_before):
    raw = {**RAW, 'metadata': {**RAW['metadata']}}
    body = objects.Body(raw)
    logger = loggers.ObjectLogger(body=body, settings=operator_settings)
    if is_used_before:
        logger.warning('before')
    raw['metadata']['name'] = 'modified'
    raw['kind'] = 'Modified'
    body._replace_with({'metadata': {'name': 'replaced'}})

    logger.warning('after')

    assert caplog.records[-1].k8s_ref == REF


@pytest.mark.guarantee('FND-031')
@pytest.mark.parametrize(
    'cls, is_local', [(kopf.ObjectLogger, False), (kopf.LocalObjectLogger, True)]
)
def test_extras_of_all_messages_are_known(cls, is_local):
    settings = kopf.OperatorSettings()
    logger = cls(body={'kind': 'k', 'metadata': {'name': 'n', 'uid': 'u'}}, settings=settings)

    assert logger.extra == {
        'k8s_ref': {'kind': 'k', 'name': 'n', 'uid': 'u'},
        'k8s_skip': is_local,
        'settings': settings,
    }


def test_message_has_its_own_extras_too(caplog, object_logger):
    object_logger.warning('Hello!', extra={'color': 'red', 'k8s_skip': True})

    (record,) = caplog.records
    assert (record.color, record.k8s_skip, record.k8s_ref) == ('red', True, REF)


def test_adapters_of_users_can_wrap_object_loggers(caplog, object_logger):
    adapter = logging.LoggerAdapter(object_logger, {'color': 'red'})

    adapter.warning('Hello!')

    (record,) = caplog.records
    assert (record.color, record.k8s_ref) == ('red', REF)


@pytest.mark.parametrize(
    'log',
    [
        pytest.param(lambda logger: logger.info('Hello, %s!', 'world'), id='text'),
        pytest.param(lambda logger: logger.log(logging.INFO, 'Hello, %s!', 'world'), id='level'),
        pytest.param(lambda logger: logger.info('Hello, %s!', 'world', exc_info=True), id='error'),
        pytest.param(lambda logger: logger.info('Hello, %s!', 'world', extra={'x': 1}), id='extra'),
    ],
)
def test_records_know_who_has_logged_them(caplog, object_logger, log):
    with caplog.at_level(logging.INFO):
        log(object_logger)

    [record] = caplog.records
    assert (record.pathname, record.funcName, record.message) == (
        __file__,
        '<lambda>',
        'Hello, world!',
    )
    assert record.lineno == log.__code__.co_firstlineno


def test_records_know_the_callers_of_their_callers(caplog, object_logger):
    def complain():
        object_logger.warning('Hello!', stacklevel=2)

    complain()

    [record] = caplog.records
    assert record.funcName == 'test_records_know_the_callers_of_their_callers'


def test_seconds_of_messages_are_their_own(console, object_logger):
    formatter = loggers.make_formatter(loggers.LogFormat.FULL, log_prefix=False, log_refkey=None)
    plain = logging.Formatter('%(asctime)s')
    records = [
        logging.makeLogRecord(
            {'name': 'x', 'msg': 'x', 'created': created, 'msecs': created % 1 * 1000}
        )
        for created in (1.25, 1.75, 2.5, 1.0)
    ]

    times = [formatter.format(record).partition(']')[0] for record in records]

    assert times == [f'[{plain.format(record)}' for record in records]


@pytest.mark.parametrize(
    'ref, prefix',
    [
        pytest.param({'namespace': 'ns', 'name': 'obj'}, '[ns/obj] ', id='namespaced'),
        pytest.param({'name': 'obj'}, '[obj] ', id='cluster-scoped'),
        pytest.param({'namespace': 'ns'}, '[ns] ', id='nameless'),
        pytest.param({'kind': 'Pod'}, '', id='unidentified'),
        pytest.param({}, '', id='empty'),
        pytest.param(None, '', id='none'),
    ],
)
@pytest.mark.guarantee('KWA-030')
def test_prefix_is_made_of_the_namespace_and_the_name(ref, prefix):
    assert loggers.build_prefix(make_record(k8s_ref=ref)) == prefix


@pytest.mark.guarantee('CFG-006', 'CFG-008', 'CFG-015', 'FND-046')
def test_default_format_is_full_and_with_no_prefix(console, object_logger):
    loggers.configure()

    object_logger.info('About an object')
    logging.getLogger('some.very.long.name.of.a.logger').warning('About nothing')

    first, second = console().splitlines()
    moment, _, rest = first.partition('] ')
    assert datetime.datetime.strptime(moment, '[%Y-%m-%d %H:%M:%S,%f')
    assert rest == 'kopf.objects         [INFO    ] About an object'
    assert second.partition('] ')[2] == 'name.of.a.logger     [WARNING ] About nothing'


@pytest.mark.guarantee('FND-046')
@pytest.mark.parametrize(
    'name, shown',
    [
        pytest.param('kopf.objects', 'kopf.objects', id='short'),
        pytest.param('kopf._core.reactor.operating', 'reactor.operating', id='last-parts'),
        pytest.param('kopf._core.engines.admission.registration', 'registration', id='last-part'),
        pytest.param('kopf.activities.startup', 'activities.startup', id='activity'),
        pytest.param('a.twenty.characters.x', 'twenty.characters.x', id='too-long-by-one'),
        pytest.param('some.twenty.letters1', 'some.twenty.letters1', id='exact'),
        pytest.param(
            'package.a_very_long_name_of_a_module', 'a_very_long_name_of_a_module', id='indivisible'
        ),
    ],
)
def test_names_of_loggers_are_shortened_by_whole_parts(console, caplog, name, shown):
    loggers.configure()

    logging.getLogger(name).warning('Hello!')

    assert f'] {shown:20s} [WARNING ] Hello!\n' in console()
    assert [record.name for record in caplog.records] == [name]  # for others, it is whole


@pytest.mark.guarantee('FND-046')
def test_names_of_loggers_are_whole_in_formats_of_users(console):
    loggers.configure(log_format='%(name)s:%(message)s')

    logging.getLogger('kopf._core.reactor.operating').warning('Hello!')

    assert console() == 'kopf._core.reactor.operating:Hello!\n'


@pytest.mark.guarantee('FND-046')
@pytest.mark.parametrize('is_async', [True, False], ids=['coroutine', 'thread'])
async def test_json_lines_of_handlers_have_their_ids_and_attempts(
    console, operator_settings, object_logger, is_async
):
    def fn(**_):
        logging.getLogger('users.own').info('Of the user.')
        raise kopf.TemporaryError('why')

    async def coro(**_):
        fn()

    loggers.configure(verbose=True, log_format=loggers.LogFormat.JSON)
    handler = execution.Handler(id='create/sub', fn=coro if is_async else fn)
    state = progression.HandlerState(retries=2, started=clocks.Clock()())
    cause = causes.Cause(logger=object_logger, memo=None)
    env = execution.Environment(settings=operator_settings, now=clocks.Clock())

    await execution.run_attempt(handler, cause, state, env)
    object_logger.info('After it.')

    *lines, last = map(json.loads, console().splitlines())
    facts = [(line['logger'], line.get('handler'), line.get('attempt')) for line in lines]
    assert facts == [
        (name, 'create/sub', 3) for name in ('kopf.objects', 'users.own', 'kopf.objects')
    ]
    assert 'handler' not in last and 'attempt' not in last


@pytest.mark.guarantee('FND-046')
def test_extras_of_users_win_over_our_own_in_json(console):
    loggers.configure(log_format=loggers.LogFormat.JSON)

    logging.getLogger('other').info('Hello!', extra={'logger': 'mine'})

    assert json.loads(console())['logger'] == 'mine'


@pytest.mark.guarantee('CFG-009', 'CFG-010', 'CFG-015', 'KWA-030')
@pytest.mark.parametrize(
    'log_prefix, expected',
    [
        pytest.param(True, '[default/kopf-example-1] Hello, %!\nplain\n', id='on'),
        pytest.param(None, '[default/kopf-example-1] Hello, %!\nplain\n', id='auto'),
        pytest.param(False, 'Hello, %!\nplain\n', id='off'),
    ],
)
def test_plain_format_has_only_the_message_and_maybe_the_prefix(
    console, object_logger, log_prefix, expected
):
    loggers.configure(log_format=loggers.LogFormat.PLAIN, log_prefix=log_prefix)

    object_logger.info('Hello, %s!', '%')
    logging.getLogger('other').info('plain')

    assert console() == expected


@pytest.mark.guarantee('CFG-010')
def test_prefix_is_inside_of_the_full_format(console, object_logger):
    loggers.configure(log_prefix=True)

    object_logger.info('Hello!')

    assert console().endswith('] kopf.objects         [INFO    ] [default/kopf-example-1] Hello!\n')


def test_format_can_be_of_the_users(console, object_logger):
    loggers.configure(log_format='%(levelname)s:%(message)s', log_prefix=True)

    object_logger.info('Hello!')

    assert console() == 'INFO:[default/kopf-example-1] Hello!\n'


@pytest.mark.guarantee('CFG-010')
def test_prefix_does_not_leak_to_other_handlers(caplog, console, object_logger):
    loggers.configure(log_format=loggers.LogFormat.PLAIN, log_prefix=True)

    object_logger.info('Hello!')

    assert caplog.messages == ['Hello!']


def test_tracebacks_follow_the_messages(console, object_logger):
    loggers.configure(log_format=loggers.LogFormat.PLAIN, log_prefix=True)

    try:
        raise ValueError('boo!')
    except ValueError:
        object_logger.exception('Failed.')

    lines = console().splitlines()
    assert lines[:2] == ['[default/kopf-example-1] Failed.', 'Traceback (most recent call last):']
    assert lines[-1] == 'ValueError: boo!'


@pytest.mark.guarantee('CFG-011', 'CFG-013', 'CFG-014', 'CFG-015', 'NEW-206')
@pytest.mark.parametrize(
    'refkey, key',
    [
        pytest.param(None, 'object', id='default'),
        pytest.param('k8s-obj', 'k8s-obj', id='renamed'),
    ],
)
@pytest.mark.parametrize(
    'log_prefix, message',
    [
        pytest.param(None, 'Hello!', id='auto'),
        pytest.param(False, 'Hello!', id='off'),
        pytest.param(True, '[default/kopf-example-1] Hello!', id='on'),
    ],
)
def test_json_lines_refer_to_objects(console, object_logger, refkey, key, log_prefix, message):
    loggers.configure(log_format=loggers.LogFormat.JSON, log_prefix=log_prefix, log_refkey=refkey)

    object_logger.info('Hello!')
    logging.getLogger('other').info('plain')

    first, second = map(json.loads, console().splitlines())
    assert datetime.datetime.fromisoformat(
        first.pop('timestamp')
    ).utcoffset() == datetime.timedelta(0)
    assert datetime.datetime.fromisoformat(
        second.pop('timestamp')
    ).utcoffset() == datetime.timedelta(0)
    assert first == {'message': message, key: REF, 'severity': 'info', 'logger': 'kopf.objects'}
    assert second == {'message': 'plain', 'severity': 'info', 'logger': 'other'}


@pytest.mark.guarantee('CFG-012', 'NEW-206')
def test_timestamps_have_microseconds_and_the_offset():
    record = make_record(created=1605485152.0)

    line = json.loads(jsonlogs.JsonFormatter(refkey='object', prefix=None).format(record))

    assert line['timestamp'] == '2020-11-16T00:05:52.000000+00:00'


@pytest.mark.guarantee('CFG-012', 'NEW-206')
@pytest.mark.parametrize(
    'level, severity',
    [
        (1, 'debug'),
        (logging.DEBUG, 'debug'),
        (logging.INFO, 'info'),
        (logging.WARNING, 'warn'),
        (logging.WARNING + 1, 'error'),
        (logging.ERROR, 'error'),
        (logging.CRITICAL, 'fatal'),
        (99, 'fatal'),
    ],
)
def test_severities_are_named_by_levels(level, severity):
    assert jsonlogs.get_severity(level) == severity


def test_json_has_extras_of_the_message_and_the_traceback(console, object_logger):
    loggers.configure(log_format=loggers.LogFormat.JSON)

    try:
        raise ValueError('boo!')
    except ValueError:
        object_logger.exception(
            'Failed.', extra={'color': 'red', 'unusual': object(), 'k8s_level': 1}
        )

    line = json.loads(console())
    assert line['color'] == 'red'
    assert line['exc_info'].endswith('ValueError: boo!')
    assert 'settings' not in line and not [key for key in line if key.startswith('k8s_')]


@pytest.mark.guarantee('NEW-205')
def test_repeated_configuration_replaces_the_previous_one(console):
    loggers.configure()
    loggers.configure(log_format=loggers.LogFormat.JSON)
    loggers.configure(log_format=loggers.LogFormat.PLAIN)

    logging.getLogger('other').warning('Hello!')

    assert console() == 'Hello!\n'


def test_handlers_of_others_are_kept(console):
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)

    loggers.configure()

    assert handler in logging.getLogger().handlers


@pytest.mark.guarantee('CLI-005', 'CLI-006', 'CLI-007')
@pytest.mark.parametrize(
    'options, shown',
    [
        pytest.param({}, ['INFO', 'WARNING', 'ERROR'], id='default'),
        pytest.param({'quiet': True}, ['WARNING', 'ERROR'], id='quiet'),
        pytest.param({'verbose': True}, ['DEBUG', 'INFO', 'WARNING', 'ERROR'], id='verbose'),
        pytest.param({'debug': True}, ['DEBUG', 'INFO', 'WARNING', 'ERROR'], id='debug'),
        pytest.param(
            {'verbose': True, 'quiet': True},
            ['DEBUG', 'INFO', 'WARNING', 'ERROR'],
            id='verbose-quiet',
        ),
    ],
)
def test_levels_are_shown_as_asked(console, options, shown):
    loggers.configure(**options, log_format=loggers.LogFormat.PLAIN)

    for level in ('DEBUG', 'INFO', 'WARNING', 'ERROR'):
        logging.getLogger('kopf.any').log(getattr(logging, level), level)

    assert console().split() == shown


@pytest.mark.guarantee('CLI-005', 'CLI-007')
@pytest.mark.parametrize(
    'name', ['asyncio', 'aiohttp.client', 'kubernetes.client.rest', 'kopf.sandbox']
)
@pytest.mark.parametrize(
    'options, shown',
    [
        pytest.param({'verbose': True}, ['INFO'], id='verbose'),
        pytest.param({'debug': True}, ['DEBUG', 'INFO'], id='debug'),
    ],
)
def test_debug_messages_of_libraries_are_only_for_debugging(console, name, options, shown):
    loggers.configure(**options, log_format=loggers.LogFormat.PLAIN)

    logging.getLogger(name).debug('DEBUG')
    logging.getLogger(name).info('INFO')

    assert console().split() == shown


def test_console_is_the_current_stream(console, monkeypatch):
    loggers.configure(log_format=loggers.LogFormat.PLAIN)
    other = io.StringIO()
    monkeypatch.setattr(sys, 'stderr', other)

    logging.getLogger('other').warning('Hello!')

    assert (console(), other.getvalue()) == ('', 'Hello!\n')


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def open_terminal(monkeypatch):
    """
    Have a terminal for the standard error stream, and return it: in the test itself, as pytest
    replaces it too.
    """
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.delenv('NO_COLOR', raising=False)

    def open_terminal():
        monkeypatch.setattr(sys, 'stderr', Terminal())
        return sys.stderr

    return open_terminal


@pytest.mark.parametrize(
    'level, expected',
    [
        pytest.param(logging.DEBUG, '\033[2mHello!\033[0m\n', id='debug'),
        pytest.param(logging.INFO, 'Hello!\n', id='info'),
        pytest.param(logging.WARNING, '\033[33mHello!\033[0m\n', id='warning'),
        pytest.param(logging.ERROR, '\033[31mHello!\033[0m\n', id='error'),
        pytest.param(logging.CRITICAL, '\033[31mHello!\033[0m\n', id='critical'),
    ],
)
def test_levels_have_colours_on_a_terminal(open_terminal, level, expected):
    terminal = open_terminal()
    loggers.configure(debug=True, log_format=loggers.LogFormat.PLAIN)

    logging.getLogger('other').log(level, 'Hello!')

    assert terminal.getvalue() == expected


@pytest.mark.parametrize(
    'variables, log_format',
    [
        pytest.param({'NO_COLOR': '1'}, loggers.LogFormat.PLAIN, id='unwelcome'),
        pytest.param({'TERM': 'dumb'}, loggers.LogFormat.PLAIN, id='unable'),
        pytest.param({}, loggers.LogFormat.JSON, id='for-machines'),
    ],
)
def test_colours_are_not_for_everyone(open_terminal, monkeypatch, variables, log_format):
    terminal = open_terminal()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    loggers.configure(log_format=log_format)

    logging.getLogger('other').error('Hello!')

    assert 'Hello!' in terminal.getvalue()
    assert '\033' not in terminal.getvalue()


def test_colours_are_only_for_terminals(open_terminal, monkeypatch):
    open_terminal()
    loggers.configure(log_format=loggers.LogFormat.PLAIN)
    monkeypatch.setattr(sys, 'stderr', other := io.StringIO())  # e.g. redirected later

    logging.getLogger('other').error('Hello!')

    assert other.getvalue() == 'Hello!\n'


def test_wrong_messages_do_not_break_the_code_that_logs(console):
    record = logging.LogRecord(
        'other', logging.INFO, 'file.py', 123, 'Two values: %s, %s', (1,), None
    )

    loggers.ConsoleHandler().handle(record)

    assert 'not enough arguments for format string' in console()


@pytest.mark.guarantee('CFG-006')
def test_public_names_are_those_of_this_module():
    assert kopf.configure is loggers.configure
    assert kopf.LogFormat is loggers.LogFormat
    assert kopf.ObjectLogger is loggers.ObjectLogger
    assert kopf.LocalObjectLogger is loggers.LocalObjectLogger
