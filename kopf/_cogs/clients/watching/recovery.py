"""
Recovery: how a watch-stream continues after its connection has ended, and when.

It continues from the last version, or with a listing if nothing can be continued from there.
"""

import logging
import math

from kopf._cogs.clients import errors, outages, retries
from kopf._cogs.clients.watching import positions, stream_states, watch_events

HEALTHY_PERIOD = 10.0
"""Seconds of an open stream after which its next failure is not related to the previous ones."""


SUSPICIOUS_PERIOD = 1.0
"""Seconds of an open stream within which its end is a failure if nothing has come."""


BARREN_PERIOD = 300.0
"""Seconds without even bookmarks after which the next silent stream is not trusted."""


class EmptyStreamError(errors.APIDisconnectedError):
    """The stream was accepted and ended properly, but immediately, with nothing in it."""


def conclude(position: positions.Position, failure: Exception | None) -> float:
    """Record and log the end of the attempt; return the delay before the next one."""
    state = position.state
    logger = position.context.logger
    now = positions.read_clock()
    lifetime = 0.0 if position.opened is None else now - position.opened

    if position.is_streaming and _is_streaming_impossible(position, failure):
        position.is_streaming_refused = True
        logger.warning(
            'The server does not stream the existing objects of %s; they will be listed instead.',
            position,
        )

    if failure is None and not position.is_fruitful and lifetime < SUSPICIOUS_PERIOD:
        failure = EmptyStreamError('The stream has ended at once, with nothing in it.')
    if failure is None or lifetime >= HEALTHY_PERIOD:
        state.failures = 0
    if failure is None:
        logger.debug('The stream of %s has ended, and will be continued.', position)
        position.version = position.version or None
        position.enter(stream_states.Phase.PAUSING)
        return position.context.settings.watching.reconnect_backoff

    state.fail(failure, now)
    position.is_doubtful = position.is_doubtful or not isinstance(failure, errors.APIError)
    position.flow.failures += 1
    position.enter(stream_states.Phase.WAITING)

    return _prepare_retry(position, failure)


def _prepare_retry(position: positions.Position, failure: Exception) -> float:
    state = position.state
    context = position.context
    is_expired = watch_events.classify_error(failure) is watch_events.Trouble.EXPIRED or _is_barren(
        position
    )

    if is_expired or not position.version:
        position.version = None
        state.own.clear()

    asked = failure.retry_after if isinstance(failure, errors.APIError) else None
    delay = max(asked or 0.0, retries.choose_backoff(state.failures, context.chance()))
    if is_expired and state.failures == 1:
        delay = max(asked or 0.0, context.settings.watching.reconnect_backoff)
        context.logger.info(
            'The stream of %s cannot be continued, and begins again: %s', position, failure
        )
    else:
        context.logger.log(
            _choose_level(position, failure),
            'The stream of %s has failed (%d in a row), and will be continued in %.1f s: %s',
            position,
            state.failures,
            delay,
            failure,
        )

    return delay


def _choose_level(position: positions.Position, failure: Exception) -> int:
    """Choose the log level of a failure: many streams lost at once are one problem."""
    is_lost = position.opened is not None and isinstance(failure, errors.APIDisconnectedError)
    if is_lost and not position.context.reachability.note_loss(positions.read_clock()):
        return logging.DEBUG
    return outages.choose_level(failure)


def _is_barren(position: positions.Position) -> bool:
    """
    Return whether nothing comes from this version, though the streams are accepted.

    Possibly, nothing happens, and there are no bookmarks, as for some resources. Or the version has
    expired, and the server just ends such streams. Or a proxy in between holds them back. Only a
    listing can distinguish these cases, and it reveals the changes anyway.
    """
    state = position.state
    is_accepted = position.opened is not None and not position.is_fruitful
    silence = math.inf if state.fed is None else positions.read_clock() - state.fed
    is_empty = isinstance(state.error, EmptyStreamError) and state.failures > 1

    return is_accepted and (silence >= BARREN_PERIOD or is_empty)


def _is_streaming_impossible(position: positions.Position, failure: Exception | None) -> bool:
    """
    Return whether the server refuses to stream the existing objects, or never marks their end.
    """
    match failure:
        case errors.APIInvalidError() | errors.APIClientError(code=400):
            return True
        case None | errors.APISilenceError():
            return position.opened is not None

    return False
