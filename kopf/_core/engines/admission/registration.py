"""
Registration: maintains the webhook configurations in the cluster while the operator runs.

Nothing is written while nothing changes. The configurations are compared with the last stored ones
at least once a minute; if others have changed them, they are restored. If the configurations cannot
be written, the operator continues and retries.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from kopf._cogs.aiokits import bells
from kopf._cogs.clients import creating, errors, requests, retries
from kopf._cogs.helpers import repeats
from kopf._cogs.structs import credentials, references, reviews, selectors
from kopf._core.engines.admission import configurations, paths
from kopf._core.intents import causes

logger = logging.getLogger(__name__)

WRITING_TIMEOUT = 5.0
"""Seconds to write a configuration once; then it is retried."""

WITHDRAWAL_TIMEOUT = 10.0
"""Seconds for all attempts to remove the records when the operator exits."""

WITHDRAWAL_BACKOFF = 1.0
"""Seconds between these attempts."""

INSPECTION_PERIOD = 45.0
"""
Seconds between the checks of the configurations, which also limit conflicts with other writers.
"""

INSPECTION_JITTER = 0.2
"""The maximum share by which the period is shortened, to spread the checks of many operators."""

FAILURES = errors.RequestError, TimeoutError, OSError

_OPTIONS = requests.Options(answers=(403, 404, 409, 422), backoffs=())

_HINTS = {
    403: 'Grant the operator the verbs create and patch on it.',
    422: 'See if settings.admission.managed is a domain name, and if the server is reachable by '
    'https.',
}


class Scope(Protocol):
    """The resources currently matched by the selectors of the handlers."""

    @property
    def reviewed(self) -> Mapping[selectors.Selector, Collection[references.Resource]]: ...

    @property
    def is_resources_known(self) -> bool: ...

    @property
    def revision(self) -> int: ...

    async def wait_until_changed(self, since: int) -> None: ...


class Keeper:
    """
    The keeper of the configurations of one operator. Belongs to its event loop.

    It is run by one task, and then withdrawn. Nothing is written until the resources and a client
    config are known. After each attempt to write, successful or not, ``on_attempt`` is called.
    """

    def __init__(
        self,
        name: str,
        *,
        context: requests.Context,
        scope: Scope,
        get_webhooks: Callable[[], Sequence[paths.Webhook]],
        on_attempt: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_attempt = on_attempt
        self._name = name
        self._context = context
        self._scope = scope
        self._get_webhooks = get_webhooks
        self._client: reviews.WebhookClientConfig | None = None
        # The last written records; None if the result of the writing is unknown.
        self._written: dict[causes.WebhookType, Sequence[configurations.Record] | None] = {}
        # The same records as returned by the API.
        self._stored: dict[causes.WebhookType, Sequence[configurations.Record]] = {}
        # The configurations that could not be read by the last check.
        self._unseen: set[causes.WebhookType] = set()
        self._repairs = repeats.Repeats()
        self._bell = bells.Bell()

    def reconfigure(self, client: reviews.WebhookClientConfig) -> None:
        """Use this client config for all webhooks from now on."""
        self._client = client
        self._bell.ring()

    async def run(self) -> None:
        """
        Write the configurations when needed, until cancelled. Raises `LoginError` if not logged in.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(), name='scope of webhooks')
                group.create_task(self._keep(), name='writer of webhooks')
                group.create_task(self._inspect(), name='inspector of webhooks')
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None

    async def withdraw(self) -> bool:
        """
        Remove all but the persistent records, in a limited time; return whether there were any.

        If it is not possible, it is logged. If cancelled, some of them can be left.
        """
        wanted = self._build(
            [webhook for webhook in self._get_webhooks() if webhook.traits.is_persistent]
        )
        outdated = [type for type in self._written if self._written[type] != wanted[type]]
        try:
            async with asyncio.timeout(WITHDRAWAL_TIMEOUT):
                for type in outdated:
                    await self._insist(type, wanted[type])
        except (*FAILURES, credentials.LoginError) as error:
            logger.warning(
                'The webhooks are left in the configurations %r, and can block the requests to '
                'the cluster while the operator is down: %s',
                self._name,
                str(error) or 'there is no answer.',
            )

        return bool(outdated)

    async def _follow(self) -> None:
        while True:
            await self._scope.wait_until_changed(self._scope.revision)
            self._bell.ring()

    async def _keep(self) -> None:
        failures = 0
        while True:
            wanted = self._build(self._get_webhooks())
            outdated = [type for type in wanted if self._written.get(type) != wanted[type]]
            if not outdated:
                await self._bell.wait()
                continue
            results = [await self._try(type, wanted[type]) for type in outdated]
            self._on_attempt()
            failures = 0 if all(results) else failures + 1
            if failures:
                await self._wait(retries.choose_backoff(failures, self._context.chance()))

    async def _inspect(self) -> None:
        """
        Check periodically whether the configurations are as they were written; rewrite them if not.
        """
        while True:
            await asyncio.sleep(
                INSPECTION_PERIOD * (1 - INSPECTION_JITTER * self._context.chance())
            )
            for type in [type for type, records in self._written.items() if records]:
                await self._compare(type)

    async def _compare(self, type: causes.WebhookType) -> None:
        stored = self._stored.get(type)
        try:
            found = await self._read(type)
        except FAILURES as error:
            self._report_unseen(type, error)
            return

        self._unseen.discard(type)
        is_written_meanwhile = (
            self._written.get(type) is None or self._stored.get(type) is not stored
        )
        if is_written_meanwhile or stored is None:
            return

        differences = configurations.list_differences(stored, found)
        if differences:
            self._report_repair(type, '; '.join(differences))
            self._written[type] = None
            self._bell.ring()

    def _report_repair(self, type: causes.WebhookType, differences: str) -> None:
        """
        Warn about changes by others; equal repeated changes are reported only from time to time.
        """
        now = asyncio.get_running_loop().time()
        left_out = self._repairs.admit((type, differences), now=now)
        logger.log(
            logging.DEBUG if left_out is None else logging.WARNING,
            'The %s %r was changed by others, and is put right: %s. It is checked every %d '
            'seconds. If other operators use the same name, give them different ones in '
            'settings.admission.managed.%s',
            configurations.RESOURCES[type].kind,
            self._name,
            differences,
            INSPECTION_PERIOD,
            repeats.describe(left_out or 0),
        )

    def _report_unseen(self, type: causes.WebhookType, error: Exception) -> None:
        """Warn once that changes by others cannot be detected, until they can be."""
        level = logging.DEBUG if type in self._unseen else logging.WARNING
        self._unseen.add(type)
        hint = (
            ' Grant the operator the verb get on it.'
            if isinstance(error, errors.APIForbiddenError)
            else ''
        )
        logger.log(
            level,
            'The %s %r cannot be read, so its changes by others are not noticed: %s.%s',
            configurations.RESOURCES[type].kind,
            self._name,
            _describe(error),
            hint,
        )

    async def _wait(self, delay: float) -> None:
        """Wait before the next attempt, or until something changes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._bell.wait()

    def _build(self, chosen: Sequence[paths.Webhook]) -> configurations.Records:
        """Build the required records; empty if they are not known yet."""
        if self._client is None or not self._scope.is_resources_known:
            return {}
        return configurations.build_records(chosen, self._scope.reviewed, self._client, self._name)

    async def _try(
        self, type: causes.WebhookType, records: Sequence[configurations.Record]
    ) -> bool:
        """Write a configuration, or log why it cannot be written."""
        try:
            await self._write(type, records)
        except FAILURES as error:
            hint = _HINTS.get(error.code) if isinstance(error, errors.APIError) else None
            logger.warning(
                'The %s %r is not written, and will be tried again: %s.%s',
                configurations.RESOURCES[type].kind,
                self._name,
                _describe(error),
                f' {hint}' if hint else '',
            )
            return False

        return True

    async def _insist(
        self, type: causes.WebhookType, records: Sequence[configurations.Record]
    ) -> None:
        """Write a configuration with retries, unless it is refused."""
        while True:
            try:
                return await self._write(type, records)
            except errors.APIClientError:
                raise
            except FAILURES as error:
                logger.debug('The webhooks are not removed from %r yet: %s', self._name, error)
            await asyncio.sleep(WITHDRAWAL_BACKOFF)

    async def _write(
        self, type: causes.WebhookType, records: Sequence[configurations.Record]
    ) -> None:
        """
        Replace all records with these. If refused, restore what was known of the written ones.
        """
        known = {type: self._written[type]} if type in self._written else {}
        self._written[type] = None
        try:
            async with asyncio.timeout(WRITING_TIMEOUT):
                stored = await self._replace(
                    type, records, is_dispensable=not records and not known.get(type)
                )
        except errors.APIClientError:
            del self._written[type]
            self._written.update(known)
            raise

        self._written[type] = records
        self._stored[type] = stored
        level = logging.INFO if records or known.get(type) else logging.DEBUG
        logger.log(
            level,
            'The %s %r has %d webhooks of this operator now.',
            configurations.RESOURCES[type].kind,
            self._name,
            len(records),
        )

    async def _replace(
        self,
        type: causes.WebhookType,
        records: Sequence[configurations.Record],
        *,
        is_dispensable: bool,
    ) -> Sequence[configurations.Record]:
        """
        Patch the configuration, or create it if absent; return the stored records.

        If there is nothing to write or to remove, it may be forbidden.
        """
        try:
            return await self._patch(type, records)
        except errors.APINotFoundError:
            return await self._create(type, records) if records else []
        except errors.APIForbiddenError:
            if not is_dispensable:
                raise
            return []

    async def _create(
        self, type: causes.WebhookType, records: Sequence[configurations.Record]
    ) -> Sequence[configurations.Record]:
        body = configurations.build_configuration(type, self._name, records)
        try:
            created = await creating.create_object(
                configurations.RESOURCES[type], body, context=self._context, options=_OPTIONS
            )
        except errors.APIConflictError:  # another writer has just created it
            return await self._patch(type, records)

        return configurations.get_records(created)

    async def _patch(
        self, type: causes.WebhookType, records: Sequence[configurations.Record]
    ) -> Sequence[configurations.Record]:
        url = configurations.RESOURCES[type].get_url(name=self._name)
        patched = await requests.patch(
            url, context=self._context, payload={'webhooks': records}, options=_OPTIONS
        )
        return configurations.get_records(patched)

    async def _read(self, type: causes.WebhookType) -> Sequence[configurations.Record] | None:
        """Read the current records; ``None`` if there is no such configuration."""
        url = configurations.RESOURCES[type].get_url(name=self._name)
        try:
            async with asyncio.timeout(WRITING_TIMEOUT):
                return configurations.get_records(
                    await requests.get(url, context=self._context, options=_OPTIONS)
                )
        except errors.APINotFoundError:
            return None


def _describe(error: Exception) -> str:
    return (str(error) or 'there is no answer').rstrip('.')
