"""
Tunnels: public endpoints of external services, forwarded to a server in the operator's process.

They are for development, when the cluster cannot reach the machine where the operator runs.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import urllib.parse
from collections.abc import AsyncIterator
from typing import Any

from kopf._cogs.structs import reviews
from kopf._kits.webhooks import addresses, contexts, detection, server_options, servers

logger = logging.getLogger(__name__)

CLOSING_TIMEOUT = 10.0
"""Seconds to wait until a tunnel is closed."""


class WebhookNgrokTunnel(contexts.WebhookContextManager):
    """
    A tunnel of ngrok: a public HTTPS endpoint, forwarded to a local HTTP server.

    ``addr``, ``port`` and ``path`` are of the local server; by default, it listens on localhost at
    a random port. ``token`` is the token of the ngrok subscription, if any; ``region`` is the
    location of the endpoint. ``binary`` is the program to use; by default, it is downloaded.

    The endpoint is public: anyone who knows the URL can make requests.
    """

    def __init__(
        self,
        *,
        addr: str | None = None,
        port: int | None = None,
        path: str | None = None,
        token: str | None = None,
        region: str | None = None,
        binary: server_options.FilePath | None = None,
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path
        self.token = token
        self.region = region
        self.binary = binary

    def __call__(self, fn: reviews.WebhookFn) -> AsyncIterator[reviews.WebhookClientConfig]:
        """
        Serve requests with this function, and iterate over the client configurations.

        Raises `WebhookServerError` at the first iteration if the tunnel cannot be opened.
        """
        return self._track(lambda run: self._serve(fn, run))

    async def _serve(self, fn: reviews.WebhookFn, run: contexts.Run) -> contexts.Configs:
        ngrok = _Ngrok(self.token, self.region, self.binary)
        server = servers.WebhookServer(
            addr=self.addr or addresses.LOCALHOST, port=self.port, path=self.path, insecure=True
        )
        async with contextlib.aclosing(server._serve(fn, run)) as configs:
            try:
                async for config in configs:
                    place = urllib.parse.urlsplit(config['url'] or '')
                    yield reviews.WebhookClientConfig(
                        url=f'{await ngrok.connect(place.netloc)}{place.path}'
                    )
            finally:
                await ngrok.disconnect()


class WebhookAutoTunnel(detection.ClusterDetector, contexts.WebhookContextManager):
    """
    A server if the cluster is known to reach this machine, or a tunnel if not.

    It has only the options common to both: ``addr``, ``port`` and ``path`` of the local server.
    """

    def __init__(
        self, *, addr: str | None = None, port: int | None = None, path: str | None = None
    ) -> None:
        super().__init__()
        self.addr = addr
        self.port = port
        self.path = path

    def __call__(self, fn: reviews.WebhookFn) -> AsyncIterator[reviews.WebhookClientConfig]:
        """
        Serve requests with this function, and iterate over the client configurations.

        Raises `WebhookServerError` at the first iteration if the server or the tunnel cannot start.
        """
        return self._track(lambda run: self._serve(fn, run))

    async def _serve(self, fn: reviews.WebhookFn, run: contexts.Run) -> contexts.Configs:
        host = await self.guess_host()
        server: servers.WebhookServer | WebhookNgrokTunnel
        if host is not None:
            server = servers.WebhookServer(
                addr=self.addr, port=self.port, path=self.path, host=host
            )
        else:
            server = WebhookNgrokTunnel(addr=self.addr, port=self.port, path=self.path)

        async with contextlib.aclosing(server._serve(fn, run)) as configs:
            async for config in configs:
                yield config


class _Ngrok:
    """One tunnel. The ngrok library blocks, so it is called in threads."""

    def __init__(
        self, token: str | None, region: str | None, binary: server_options.FilePath | None
    ) -> None:
        try:
            conf = importlib.import_module('pyngrok.conf')
            ngrok = importlib.import_module('pyngrok.ngrok')
        except ImportError as error:
            raise server_options.MissingLibraryError(
                "The webhook tunnel needs the library 'pyngrok' (pip install pyngrok). "
                'Or use a server that the cluster can reach, e.g. kopf.WebhookServer().'
            ) from error

        chosen = {
            'auth_token': token,
            'region': region,
            'ngrok_path': None if binary is None else os.fspath(binary),
        }
        self._config = conf.PyngrokConfig(
            **{name: value for name, value in chosen.items() if value is not None}
        )
        self._token = token
        self._library: Any = ngrok
        self._connecting: asyncio.Task[str] | None = None

    async def connect(self, target: str) -> str:
        """
        Open the tunnel to this address; return its public URL.

        If cancelled, the tunnel can still be opened: call `disconnect`.
        """
        self._connecting = asyncio.create_task(
            asyncio.to_thread(self._connect, target), name='ngrok connector'
        )
        url = await asyncio.shield(self._connecting)
        logger.info(
            'The tunnel is open, and is public: anyone who knows its URL can make requests to the '
            'handlers.'
        )

        return url

    async def disconnect(self) -> None:
        """Close the tunnel if it is open or opening. Takes at most `CLOSING_TIMEOUT` seconds."""
        if self._connecting is None:
            return
        closing = asyncio.create_task(self._close(self._connecting), name='ngrok closer')
        await asyncio.wait([closing], timeout=CLOSING_TIMEOUT)
        if not closing.done():
            logger.warning('The tunnel is not closed in time, and is left as it is.')
            closing.cancel()
            await asyncio.wait([closing])

    async def _close(self, connecting: asyncio.Task[str]) -> None:
        await asyncio.wait([connecting])
        if connecting.exception() is None:
            await asyncio.to_thread(self._disconnect, connecting.result())

    def _connect(self, target: str) -> str:
        try:
            tunnel = self._library.connect(
                target, 'http', pyngrok_config=self._config, schemes=['https']
            )
        except Exception as error:  # of the library, of the network, or of the program
            text = str(error).replace(self._token, '***') if self._token else str(error)
            raise server_options.WebhookServerError(
                f'The tunnel of ngrok cannot be opened: {text}'
            ) from None

        return str(tunnel.public_url).replace('http://', 'https://', 1)

    def _disconnect(self, url: str) -> None:
        try:
            self._library.disconnect(url, pyngrok_config=self._config)
            if not self._library.get_tunnels(pyngrok_config=self._config):
                self._library.kill(pyngrok_config=self._config)
        except Exception as error:  # the program can be dead already
            logger.warning('The tunnel of ngrok is not closed properly: %s', type(error).__name__)
