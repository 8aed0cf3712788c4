"""
Checks: whether all settings have values that the framework can work with.

All wrong fields are reported together, so that they can be corrected together. Nothing is changed
or converted.
"""

import concurrent.futures
import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kopf._cogs.configs import diffbase, progress, selections, settings
from kopf._cogs.structs import backoffs

NAME_LIMIT = 253
_LABEL = re.compile('[a-z0-9]([-a-z0-9]*[a-z0-9])?')


@dataclasses.dataclass(frozen=True)
class Rule:
    """The accepted values of a field, in code and in words."""

    accepts: Callable[[Any], bool]
    words: str

    def or_none(self) -> 'Rule':
        return Rule(lambda value: value is None or self.accepts(value), f'{self.words}, or None')


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_backoffs(value: Any) -> bool:
    """Return whether these are delays; custom iterables are trusted, as they can be infinite."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_number(delay) and delay >= 0 for delay in value)
    if isinstance(value, Iterable):
        return not isinstance(value, Iterator | str | bytes)
    return _is_number(value) and bool(value >= 0)


ANY_INTEGER = Rule(_is_integer, 'an integer')
COUNT = Rule(lambda value: _is_integer(value) and value >= 0, 'an integer, 0 or more')
LIMIT = Rule(lambda value: _is_integer(value) and value >= 1, 'an integer, 1 or more')
RATE = Rule(lambda value: _is_number(value) and value > 0, 'a number above 0')
SECONDS = Rule(lambda value: _is_number(value) and value >= 0, 'a number of seconds, 0 or more')
TIMEOUT = Rule(lambda value: _is_number(value) and value > 0, 'a number of seconds above 0')
BACKOFF = Rule(
    lambda value: isinstance(value, backoffs.Backoff) or SECONDS.accepts(value),
    'a number of seconds, 0 or more, or a kopf.Backoff',
)
BACKOFFS = Rule(_is_backoffs, 'a number of seconds, or a re-iterable of them, each 0 or more')
FLAG = Rule(lambda value: isinstance(value, bool), 'True or False')
STRING = Rule(lambda value: isinstance(value, str), 'a string')
TEXT = Rule(lambda value: isinstance(value, str) and bool(value), 'a non-empty string')
SECRETS = Rule(lambda value: value in ('values', 'digests'), "'values' or 'digests'")
SELECTIONS = Rule(
    lambda value: (
        isinstance(value, selections.Selections) and all(map(STRING.accepts, value.values()))
    ),
    'the mapping that was there, with strings as its values',
)
SERVER = Rule(
    callable, 'a webhook server: a function that takes a function and yields configurations'
)
EXECUTOR = Rule(
    lambda value: isinstance(value, concurrent.futures.Executor), 'a concurrent.futures.Executor'
)
PROGRESS_STORAGE = Rule(
    lambda value: isinstance(value, progress.ProgressStorage), 'a kopf.ProgressStorage'
)
DIFFBASE_STORAGE = Rule(
    lambda value: isinstance(value, diffbase.DiffBaseStorage), 'a kopf.DiffBaseStorage'
)

LEASE = Rule(
    lambda value: (
        isinstance(value, str)
        and len(value) <= NAME_LIMIT
        and all(_LABEL.fullmatch(label) for label in value.split('.'))
    ),
    f'a name of a Lease: up to {NAME_LIMIT} lowercase letters, digits, hyphens, and dots',
)
STANDBY = Rule(lambda value: value in ('hot', 'cold'), "'hot' or 'cold'")

RULES: dict[str, dict[str, Rule]] = {
    'breaker': {
        'limit': LIMIT.or_none(),
        'window': TIMEOUT,
        'delay': TIMEOUT,
        'max_delay': TIMEOUT,
    },
    'process': {
        'ultimate_exiting_timeout': SECONDS.or_none(),
    },
    'posting': {
        'enabled': FLAG,
        'loggers': FLAG,
        'failures': FLAG,
        'level': ANY_INTEGER,
        'default_backoffs': BACKOFFS,
        'logging_backoffs': BACKOFFS,
        'worker_limit': LIMIT.or_none(),
        'idle_timeout': SECONDS,
        'reporting_component': STRING,
        'reporting_instance': STRING,
        'event_name_prefix': TEXT,
        'burst_limit': LIMIT.or_none(),
        'burst_interval': TIMEOUT,
        'queue_limit': LIMIT,
        'exit_timeout': SECONDS,
    },
    'peering': {
        'name': TEXT,
        'stealth': FLAG,
        'priority': ANY_INTEGER,
        'lifetime': LIMIT,
        'mandatory': FLAG,
        'standalone': FLAG,
        'clusterwide': FLAG,
    },
    'leadership': {
        'name': LEASE.or_none(),
        'namespace': TEXT.or_none(),
        'lease_duration': TIMEOUT,
        'renew_deadline': TIMEOUT,
        'retry_period': TIMEOUT,
        'standby': STANDBY,
    },
    'watching': {
        'server_timeout': TIMEOUT.or_none(),
        'client_timeout': TIMEOUT.or_none(),
        'connect_timeout': TIMEOUT.or_none(),
        'reconnect_backoff': SECONDS,
        'inactivity_timeout': TIMEOUT,
        'chunk_size': COUNT.or_none(),
        'initial_streaming': FLAG,
        'label_selectors': SELECTIONS,
        'field_selectors': SELECTIONS,
        'shard_selectors': SELECTIONS,
    },
    'queueing': {
        'worker_limit': LIMIT.or_none(),
        'idle_timeout': SECONDS,
        'exit_timeout': SECONDS,
        'error_delays': BACKOFFS,
    },
    'scanning': {
        'disabled': FLAG,
    },
    'admission': {
        'server': SERVER.or_none(),
        'managed': TEXT.or_none(),
    },
    'execution': {
        'default_backoff': BACKOFF,
        'blocking_limit': TIMEOUT.or_none(),
        'executor': EXECUTOR,
    },
    'background': {
        'cancellation_polling': TIMEOUT,
        'instant_exit_timeout': SECONDS.or_none(),
        'instant_exit_zero_time_cycles': COUNT.or_none(),
    },
    'networking': {
        'request_timeout': TIMEOUT.or_none(),
        'connect_timeout': TIMEOUT.or_none(),
        'error_backoffs': BACKOFFS,
        'enforce_retry_after': FLAG,
        'trust_env': FLAG,
        'inflight_limit': LIMIT.or_none(),
        'rate_limit': RATE.or_none(),
        'rate_burst': LIMIT,
    },
    'persistence': {
        'finalizer': TEXT,
        'progress_storage': PROGRESS_STORAGE,
        'diffbase_storage': DIFFBASE_STORAGE,
        'consistency_timeout': SECONDS,
        'secrets': SECRETS,
    },
}


def check_settings(checked: settings.OperatorSettings) -> list[str]:
    """Return an error per wrong field: its name, its value, the accepted values."""
    complaints = [
        f'settings.{section}.{field} is {_describe(value)}; accepted is {rule.words}.'
        for section, rules in RULES.items()
        for field, rule in rules.items()
        for value in [getattr(getattr(checked, section), field)]
        if not rule.accepts(value)
    ]
    is_countable = not any(text.startswith('settings.leadership.') for text in complaints)
    return [*complaints, *(_check_election(checked.leadership) if is_countable else [])]


def _check_election(leadership: settings.LeadershipSettings) -> Iterator[str]:
    """Check that the leader has time for several renewals, and others wait for longer than that."""
    times = {
        field: getattr(leadership, field)
        for field in ('retry_period', 'renew_deadline', 'lease_duration')
    }
    for shorter, longer in itertools.pairwise(times):
        if times[shorter] >= times[longer]:
            yield (
                f'settings.leadership.{shorter} is {times[shorter]}; accepted is less than '
                f'settings.leadership.{longer}, which is {times[longer]}.'
            )


def _describe(value: Any) -> str:
    """Show simple values; for others, only the type: their content is unknown."""
    if value is None or isinstance(value, bool | int | float | str | list | tuple):
        shown = repr(value)
        return shown if len(shown) <= 100 else f'{shown[:100]}…'
    return f'of type {type(value).__name__}'
