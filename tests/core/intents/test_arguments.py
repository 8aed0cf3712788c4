"""
The arguments of each kind of handlers, and the functions that cannot be called with them.
"""

import pytest

import kopf
from kopf._core.intents import arguments, handlers

DECORATORS = {
    handlers.ChangingHandler: kopf.on.create,
    handlers.WatchingHandler: kopf.on.event,
    handlers.SpawningHandler: kopf.on.timer,
    handlers.WebhookHandler: kopf.on.validate,
    handlers.IndexingHandler: kopf.on.index,
}


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


def check(registry):
    arguments.check_signatures(registry._iter_handlers())


@pytest.mark.parametrize('kind', DECORATORS, ids=lambda kind: kind.__name__)
def test_handlers_can_ask_for_all_that_they_get_and_for_nothing_else(registry, kind):
    names = (*arguments.OF_ATTEMPTS, *arguments.KINDS[kind].names)
    namespace = {}
    exec(f'def good({", ".join(names)}): pass\ndef bad(settings): pass', namespace)
    DECORATORS[kind]('pods', registry=registry)(namespace['good'])
    check(registry)
    DECORATORS[kind]('pods', registry=registry)(namespace['bad'])

    with pytest.raises(TypeError, match=r"bad\(\) requires 'settings', which it never gets"):
        check(registry)


@pytest.mark.parametrize(
    'decorator, fn, hint',
    [
        pytest.param(kopf.on.create, lambda nme, **_: None, "Did you mean 'name'", id='misspelt'),
        pytest.param(kopf.on.create, lambda stopped: None, 'Handlers of changes get', id='create'),
        pytest.param(kopf.on.event, lambda old: None, 'Handlers of events get', id='event'),
        pytest.param(kopf.on.index, lambda diff: None, 'Functions of indices get', id='index'),
        pytest.param(kopf.on.daemon, lambda reason: None, 'Daemons and timers get', id='daemon'),
        pytest.param(kopf.on.mutate, lambda reason: None, 'Handlers of admission get', id='mutate'),
    ],
)
def test_error_says_where_and_what_is_given_instead(registry, decorator, fn, hint):
    decorator('pods', id='x', registry=registry)(fn)

    with pytest.raises(arguments.SignatureError, match=hint) as error:
        check(registry)

    assert str(error.value).startswith(f'{__file__}:{fn.__code__.co_firstlineno}: ')


def test_activities_are_of_one_kind(registry):
    kopf.on.login(registry=registry)(lambda diff, **_: None)

    with pytest.raises(TypeError, match=r"requires 'diff'.* Handlers of activities get: param"):
        check(registry)


def test_indices_are_known_by_their_names_also_if_declared_later(registry):
    kopf.on.create('pods', registry=registry)(lambda stopped, extra: None)
    kopf.index('pods', id='stopped', registry=registry)(lambda name: name)
    with pytest.raises(TypeError, match=r"requires 'extra', .* stopped\."):
        check(registry)

    kopf.index('pods', id='extra', registry=registry)(lambda name: name)

    check(registry)


def test_only_startup_handlers_are_judged_until_they_had_a_chance_to_declare_more(registry):
    kopf.on.startup(registry=registry)(lambda settings: None)
    kopf.on.create('pods', registry=registry)(lambda extra: None)
    check(registry)

    with pytest.raises(TypeError, match="requires 'extra'"):
        arguments.check_all(registry._iter_handlers(), indices=[])


def test_all_mistakes_are_told_at_once(registry):
    kopf.on.create('pods', registry=registry)(lambda one: None)
    kopf.on.update('pods', registry=registry)(lambda two: None)

    with pytest.raises(TypeError) as error:
        check(registry)

    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    'options, what',
    [
        pytest.param({'when': lambda nme, **_: True}, "when= of 'x' requires 'nme'", id='when'),
        pytest.param({'when': lambda retry: True}, "when= of 'x' requires 'retry'", id='attempt'),
        pytest.param(
            {'labels': {'a': lambda value, nme: True}}, "'a' in labels= of 'x' requires", id='label'
        ),
        pytest.param({'field': 'spec', 'value': lambda value, nme: True}, 'value= of', id='value'),
    ],
)
def test_filters_are_checked_too(registry, options, what):
    kopf.on.event('pods', id='x', registry=registry, **options)(lambda: None)

    with pytest.raises(TypeError, match=what):
        check(registry)


@pytest.mark.parametrize(
    'options, fn',
    [
        pytest.param({}, lambda name, /: None, id='positional-only'),
        pytest.param({'when': lambda name, /: True}, lambda: None, id='positional-only-filter'),
        pytest.param({'labels': {'a': lambda: True}}, lambda: None, id='no-place-for-the-value'),
        pytest.param({'labels': {'a': lambda name, **_: 1}}, lambda: None, id='name-of-argument'),
    ],
)
def test_what_no_index_can_help_is_refused_by_the_decorator(registry, options, fn):
    with pytest.raises(TypeError):
        kopf.on.event('pods', registry=registry, **options)(fn)

    assert not list(registry._iter_handlers())
