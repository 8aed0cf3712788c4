"""
Runner: a webhook server beside the operator, and the cluster's webhooks that point to it.

It starts before any object is handled, and stops after all of them are: the operator's own changes
are reviewed too, including the last ones. On exit, the webhooks are removed from the cluster first,
and the server is stopped after that.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, Callable, Mapping

from kopf._cogs.clients import requests
from kopf._cogs.structs import reviews
from kopf._core.engines.admission import registration, reviewer

logger = logging.getLogger(__package__)

LINGERING = 0.5
"""Seconds to keep serving API servers that have not yet noticed the removal of the webhooks."""

STOPPING_TIMEOUT = 30.0
"""Seconds for the server to finish before it is abandoned: as long as a review can take."""


class Admission:
    """
    The admission of one operator, idle without admission handlers. Belongs to its event loop.

    It is started once, when the settings are final, and stopped once, while there are still
    credentials.
    """

    def __init__(
        self,
        reviewer: reviewer.Reviewer,
        *,
        context: requests.Context,
        scope: registration.Scope,
        elected: asyncio.Event,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._elected = elected
        self._reviewer = reviewer
        self._context = context
        self._scope = scope
        self._on_ready = on_ready
        self._keeper: registration.Keeper | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._is_reachable = False
        self._place: object = None  # where the server is reachable, if anywhere

    @property
    def is_needed(self) -> bool:
        """Whether there are any admission handlers."""
        return bool(self._reviewer.webhooks)

    @property
    def is_ready(self) -> bool:
        """Whether the server is reachable, or is not needed."""
        return self._is_reachable or not self.is_needed

    def start(self) -> list[asyncio.Task[None]]:
        """
        Start the server, and write the webhooks if configured. The tasks end only by errors.

        The errors are: those of the server; `ServerError` if it ends with no errors, or is invalid;
        `LoginError`.
        """
        if not self.is_needed:
            return []

        managed = self._context.settings.admission.managed
        if managed is not None:
            self._keeper = registration.Keeper(
                managed,
                context=self._context,
                scope=self._scope,
                get_webhooks=lambda: self._reviewer.webhooks,
                on_attempt=self._on_ready,
            )
            self._keeping = asyncio.create_task(self._keep(self._keeper), name='keeper of webhooks')

        self._serving = asyncio.create_task(self._serve(), name='webhook server')
        return [task for task in (self._serving, self._keeping) if task is not None]

    async def _keep(self, keeper: registration.Keeper) -> None:
        """Write the webhooks, but of several replicas, only in the leading one."""
        await self._elected.wait()
        await keeper.run()

    async def stop(self) -> None:
        """
        Remove the non-persistent webhooks from the cluster and stop the server, in a limited time.

        If cancelled, the server is cancelled anyway, but is not awaited.
        """
        if self._serving is None:
            return

        try:
            await self._withdraw(self._serving)
        except asyncio.CancelledError:
            self._serving.cancel()
            raise

        await _stop(self._serving)

    async def _withdraw(self, serving: asyncio.Task[None]) -> None:
        if self._keeper is None or self._keeping is None:
            return
        await _stop(self._keeping)
        if self._context.settings.leadership.name is not None:
            return  # other replicas serve the same webhooks
        is_withdrawn = await self._keeper.withdraw()
        if is_withdrawn and not serving.done():
            await asyncio.sleep(LINGERING)

    async def _serve(self) -> None:
        server = self._context.settings.admission.server
        assert server is not None
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(server, contextlib.AbstractAsyncContextManager):
                server = await stack.enter_async_context(server)
            _check_server(server)
            configs = server(self._reviewer.review)
            if not isinstance(configs, AsyncIterable):
                raise reviews.ServerError(
                    f'The webhook server must be an async generator function, or alike; '
                    f'it returns {type(configs).__name__}.'
                )
            if hasattr(configs, 'aclose'):
                stack.push_async_callback(configs.aclose)
            async for config in configs:
                self._take(config)

        raise reviews.ServerError('The webhook server has ended, although it was not stopped.')

    def _take(self, config: reviews.WebhookClientConfig) -> None:
        if not isinstance(config, Mapping):
            raise reviews.ServerError(
                f'The webhook server must yield client configs as dicts; '
                f'it yields {type(config).__name__}.'
            )

        place = config.get('url') or config.get('service')
        if place != self._place:  # and not, for example, only the certificate
            self._place = place
            logger.info('The webhooks are served at %s.', place)

        if self._keeper is not None:
            self._keeper.reconfigure(config)
        if not self._is_reachable:
            self._is_reachable = True
            if self._keeper is None or not self._elected.is_set():
                self._on_ready()


def _check_server(server: object) -> None:
    """Explain a common mistake: a class given instead of its instance."""
    if isinstance(server, type) and not issubclass(server, AsyncIterable):
        name = server.__name__
        raise reviews.ServerError(
            f'The webhook server must be not the class {name} but an instance of it; '
            f'add the parentheses: {name}().'
        )


async def _stop(task: asyncio.Task[None]) -> None:
    """Cancel and await the task, for a limited time; its error is raised elsewhere, if needed."""
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=STOPPING_TIMEOUT)
    if not done:
        logger.warning(
            'The %s has not stopped in %s s, and is left as it is.',
            task.get_name(),
            STOPPING_TIMEOUT,
        )
    elif not task.cancelled():
        task.exception()
