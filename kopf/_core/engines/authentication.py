"""
Authentication: bringing credentials whenever the requests to the API have none left.

The credentials come from the login handlers, or, if none are declared, from the built-in ways to log in.
All their log lines go via two loggers: the one of the authentication handlers, and the one of the activities' engine.
"""
import datetime
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import meters
from kopf._cogs.structs import credentials, vaults
from kopf._core.actions import failures, invocation, threads
from kopf._core.engines import activities
from kopf._core.intents import causes, handlers, piggybacking, registries


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
    Log in every time when the vault is in need of credentials, until cancelled, or until the vault is closed.

    One task should do this. While it logs in, the requests are waiting; they can be waiting for as long as the login
    handlers are retried. Raises `LoginError` when they bring nothing usable, and `ValueError` when they bring
    something else than credentials: the waiting requests fail too, and there is no sense to go on.
    """
    cause = activities.build_cause(causes.Activity.AUTHENTICATION, settings=settings, memo=memo, indices=indices)
    while not vault.is_closed:
        try:
            await vault.wait_until_needed()
        except credentials.LoginError:
            if vault.is_closed:
                return
            raise
        await authenticate(select_logins(registry), cause, vault=vault, now=now, meter=meter)


async def authenticate(
        logins: Sequence[handlers.ActivityHandler],
        cause: causes.ActivityCause,
        *,
        vault: vaults.Vault,
        now: Callable[[], datetime.datetime],
        meter: meters.Meter | None = None,
) -> None:
    """
    Log in once: execute the login handlers until they are finished, and give what they have brought to the vault.

    If cancelled, the vault is as it was. Raises the same errors as `run_authentication`.
    Credentials that have only expired are worth no more than debug lines: some of them do so every minute.
    """
    is_usual = vault.has_expired
    level = logging.DEBUG if is_usual else logging.INFO
    activities.logger.log(level, "The operator has no valid credentials, and logs in.")
    outcomes = await activities.run_activity_handlers(logins, cause, now=now, meter=meter, is_quiet=is_usual)
    infos: dict[str, Any] = {id: outcome.result for id, outcome in outcomes.items()}
    try:
        if all(info is None for info in infos.values()):
            raise piggybacking.build_login_error({id: outcome.exception for id, outcome in outcomes.items()})
        await vault.populate(infos)
    except (credentials.LoginError, ValueError) as error:
        vault.fail(error if isinstance(error, credentials.LoginError) else credentials.LoginError(str(error)))
        raise
    activities.logger.log(level, "The operator has logged in.")


def select_logins(registry: registries.OperatorRegistry) -> Sequence[handlers.ActivityHandler]:
    """Select the declared login handlers, or else make handlers of the built-in functions, which are tried once."""
    declared = registry._activities.select(causes.Activity.AUTHENTICATION)
    return declared or [
        handlers.ActivityHandler(
            id=registries.build_id(fn), fn=functools.partial(_log_in_once, fn),
            activity=causes.Activity.AUTHENTICATION, errors=failures.ErrorsMode.PERMANENT)
        for fn in piggybacking.list_default_logins()
    ]


async def _log_in_once(fn: piggybacking.LoginFn, /, **kwargs: Any) -> Any:
    """Call a built-in login; it is usual for some of them to fail, while others do not."""
    try:
        return await invocation.invoke(fn, executor=threads.OwnThreads('kopf login'), kwargs=kwargs)
    except credentials.LoginError as error:
        raise failures.PermanentError(str(error)) from error
