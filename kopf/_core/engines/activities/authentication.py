"""
Authentication: provides credentials whenever the requests to the API have none left.

The credentials come from the login handlers or, if none are declared, from the built-in login
functions: from the installed libraries, and if they all fail, from the usual places. All log lines
go through two loggers: of the authentication handlers, and of the engine of activities.
"""

import dataclasses
import datetime
import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import meters
from kopf._cogs.structs import credentials, ids, vaults
from kopf._core.actions import failures, invocation, outcomes, threads
from kopf._core.engines.activities import operator_handlers
from kopf._core.intents import causes, handlers, naming, piggybacking, registries


async def run_authentication(
    *,
    registry: registries.OperatorRegistry,
    settings: settings_.OperatorSettings,
    vault: vaults.Vault,
    memo: Any,
    indices: Mapping[str, Any],
    now: Callable[[], datetime.datetime],
    meter: meters.Meter | None = None,
) -> None:
    """
    Log in whenever the vault needs credentials, until cancelled or the vault is closed.

    Run it in one task. While it logs in, the requests wait, possibly for as long as the login
    handlers are retried. Raises `LoginError` if the handlers return nothing usable, and
    `ValueError` if they return anything else than credentials: the waiting requests fail too, and
    the operator cannot continue.
    """
    cause = operator_handlers.build_cause(
        causes.Activity.AUTHENTICATION, settings=settings, memo=memo, indices=indices
    )
    while not vault.is_closed:
        try:
            await vault.wait_until_needed()
        except credentials.LoginError:
            if vault.is_closed:
                return
            raise
        if vault.fixed is not None:
            logins = _build_aside(registry, vault.fixed)
            await operator_handlers.run_activity_handlers(logins, cause, now=now, meter=meter)
            await _populate(vault, vault.fixed)
            _report(vault, logging.INFO)
        else:
            stages = select_stages(registry)
            await authenticate(stages, cause, vault=vault, now=now, meter=meter)


async def authenticate(
    stages: Sequence[Sequence[handlers.ActivityHandler]],
    cause: causes.ActivityCause,
    *,
    vault: vaults.Vault,
    now: Callable[[], datetime.datetime],
    meter: meters.Meter | None = None,
) -> None:
    """
    Log in once: execute the login handlers until finished, and put the results in the vault.

    The handlers of each next stage are executed only if the previous ones have returned nothing. If
    cancelled, the vault is unchanged. Raises the same errors as `run_authentication`. If the
    credentials have merely expired, it is logged at the debug level: some expire every minute.
    """
    is_usual = vault.has_expired
    level = logging.DEBUG if is_usual else logging.INFO
    operator_handlers.logger.log(level, 'The operator has no valid credentials, and logs in.')

    latest: dict[ids.HandlerId, outcomes.Outcome] = {}
    for stage in stages:
        staged = cause
        if stage is not stages[-1]:
            staged = _soften(cause, logging.DEBUG if is_usual else logging.WARNING)
        latest |= await operator_handlers.run_activity_handlers(
            stage, staged, now=now, meter=meter, is_quiet=is_usual
        )
        if any(outcome.result is not None for outcome in latest.values()):
            break

    infos: dict[str, Any] = {id: outcome.result for id, outcome in latest.items()}
    await _populate(vault, infos, {id: outcome.exception for id, outcome in latest.items()})
    _report(vault, level)


def _report(vault: vaults.Vault, level: int) -> None:
    if (info := vault.preferred) is not None:
        operator_handlers.logger.log(
            level, 'The operator has logged in to %s.', credentials.describe(info)
        )


async def _populate(
    vault: vaults.Vault,
    infos: Mapping[str, Any],
    attempts: Mapping[str, BaseException | None] | None = None,
) -> None:
    """Put the credentials in the vault, or fail it with the reasons why there are none."""
    try:
        if all(info is None for info in infos.values()):
            raise piggybacking.build_login_error(attempts or {})
        await vault.populate(infos)
    except (credentials.LoginError, ValueError) as error:
        vault.fail(
            error
            if isinstance(error, credentials.LoginError)
            else credentials.LoginError(str(error))
        )
        raise


def select_stages(
    registry: registries.OperatorRegistry,
) -> Sequence[Sequence[handlers.ActivityHandler]]:
    """Select the login handlers, and if none are declared, the built-in fallbacks in order."""
    logins = select_logins(registry)
    if registry._activities.select(causes.Activity.AUTHENTICATION):
        return [logins]
    return [logins, *(_build_handlers(group) for group in piggybacking.list_fallback_logins())]


def select_logins(registry: registries.OperatorRegistry) -> Sequence[handlers.ActivityHandler]:
    """Select the declared login handlers, or else the built-in ones, which are tried once."""
    declared = registry._activities.select(causes.Activity.AUTHENTICATION)
    return declared or _build_handlers(piggybacking.list_default_logins())


def _build_handlers(logins: Sequence[piggybacking.LoginFn]) -> Sequence[handlers.ActivityHandler]:
    return [
        handlers.ActivityHandler(
            id=naming.build_id(fn),
            fn=functools.partial(_log_in_once, fn),
            activity=causes.Activity.AUTHENTICATION,
            errors=failures.ErrorsMode.PERMANENT,
        )
        for fn in logins
    ]


def _build_aside(
    registry: registries.OperatorRegistry, fixed: Mapping[str, credentials.Credentials]
) -> Sequence[handlers.ActivityHandler]:
    """Make handlers that call the declared login handlers once, and return nothing."""
    servers = {info.server for info in fixed.values()}
    return [
        dataclasses.replace(handler, fn=functools.partial(_log_in_aside, handler, servers))
        for handler in registry._activities.select(causes.Activity.AUTHENTICATION)
    ]


async def _log_in_aside(
    handler: handlers.ActivityHandler, servers: Collection[str], /, **kwargs: Any
) -> None:
    given = kwargs if handler.signature is None else handler.signature.choose(kwargs)
    try:
        info = await invocation.invoke(
            handler.fn, executor=threads.OwnThreads('kopf login'), kwargs=given
        )
    except Exception as error:
        operator_handlers.logger.warning(
            'The login handler %r has failed, but its credentials are not needed here: %r',
            handler.id,
            error,
        )
        return

    if isinstance(info, credentials.Credentials) and info.server not in servers:
        operator_handlers.logger.info(
            'The login handler %r has logged in to %s, but the operator runs on %s.',
            handler.id,
            credentials.describe(info),
            ', '.join(map(credentials.hide_userinfo, servers)),
        )

    if isinstance(info, credentials.AiohttpSession):
        await info.aiohttp_session.close()


async def _log_in_once(fn: piggybacking.LoginFn, /, **kwargs: Any) -> Any:
    """Call a built-in login function; usually, some of them fail while others succeed."""
    try:
        return await invocation.invoke(fn, executor=threads.OwnThreads('kopf login'), kwargs=kwargs)
    except credentials.LoginError as error:
        raise failures.PermanentError(str(error)) from error


def _soften(cause: causes.ActivityCause, level: int) -> causes.ActivityCause:
    """Limit the level of logged failures: they are not final, as other logins follow."""
    return dataclasses.replace(cause, logger=_SoftLogger(cause.logger, level))


class _SoftLogger(logging.LoggerAdapter[Any]):
    """A logger that reduces all levels to the given one at most."""

    def __init__(self, logger: Any, ceiling: int) -> None:
        super().__init__(logger)
        self._ceiling = ceiling

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(min(level, self._ceiling), msg, *args, **kwargs)
