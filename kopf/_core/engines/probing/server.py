"""
Server: a tiny HTTP server that reports the state of the operator.

It reports only the operator's own health, to any client; nothing can be changed through it. It does
not trust its clients: their connections are limited in number and in time, with one request per
connection.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from kopf._cogs.aiokits import listeners, sockets
from kopf._cogs.helpers import jsons
from kopf._core.engines.probing import endpoints, health, probe_handlers

logger = logging.getLogger(__package__)

READINESS_PATH = '/readyz'
METRICS_PATH = '/metrics'

LIMITS = listeners.Limits(
    connections=200,
    headers_timeout=5.0,
    idle_timeout=5.0,
    lingering_timeout=1.0,
    closing_timeout=1.0,
)
"""The limits for clients. Beyond them, the oldest one without a complete request is dropped."""

Page = Callable[[web.BaseRequest], Awaitable[web.Response]]


class Server:
    """The pages at one endpoint, by their paths. Belongs to the event loop of the operator."""

    def __init__(self, endpoint: endpoints.Endpoint, pages: Mapping[str, Page]) -> None:
        self._endpoint = endpoint
        self._pages = pages
        self._listener: listeners.Listener | None = None

    async def start(self) -> None:
        """Start serving. Raises `EndpointError` if it is not possible at this endpoint."""
        try:
            bound = await sockets.bind(self._endpoint.host, self._endpoint.port)
        except OSError as error:
            raise endpoints.EndpointError(
                f'The liveness endpoint {self._endpoint} cannot be served: '
                f'{error.strerror or error}'
            ) from error

        self._listener = listeners.Listener(bound, self._answer, LIMITS, logger)
        self._listener.start()
        logger.info('The probes and the metrics are served at %s.', self._endpoint)

    async def close(self) -> None:
        """Stop serving, if it was ever started."""
        if self._listener is not None:
            await self._listener.close()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        try:
            response = await self._respond(request)
        except Exception:  # of the pages; the server continues
            logger.exception('The page %s of probes and metrics has failed.', request.path)
            response = web.Response(
                status=500, text='The page has failed. See the logs of the operator.\n'
            )

        response.headers['Cache-Control'] = 'no-store'
        response.force_close()
        return response

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        page = self._pages.get(request.path)
        if page is None:
            return web.Response(status=404, text=f'There is only this: {", ".join(self._pages)}\n')
        if request.method not in ('GET', 'HEAD'):
            return web.Response(
                status=405, headers={'Allow': 'GET, HEAD'}, text='It can only be read.\n'
            )
        return await page(request)


def build_liveness_page(
    prober: probe_handlers.Prober, examine: Callable[[], health.Vitals]
) -> Page:
    """
    Build a page with the results of the probe handlers or, if dead, also the reasons, in JSON.

    In the latter case, the results are nested, so that they are not mistaken for a success.
    """

    async def page(request: web.BaseRequest) -> web.Response:
        deaths = health.find_deaths(examine())  # before the handlers take any time
        results = {str(id): make_plain(result) for id, result in (await prober.collect()).items()}
        if not deaths:
            return web.Response(body=jsons.dumps(results), content_type='application/json')

        logger.warning('The operator is reported as dead: %s.', '; '.join(deaths))
        return web.Response(
            status=503,
            body=jsons.dumps({'problems': deaths, 'probes': results}),
            content_type='application/json',
        )

    return page


def build_readiness_page(examine: Callable[[], health.Vitals]) -> Page:
    """
    Build a page that shows the readiness, with the problems and the pauses for others.

    With ``?verbose``, it also shows all findings that are fine.
    """

    async def page(request: web.BaseRequest) -> web.Response:
        findings = health.report_readiness(examine())
        is_ready = all(finding.is_fine for finding in findings)
        is_verbose = 'verbose' in request.query
        shown = [
            finding
            for finding in findings
            if is_verbose or finding.is_notable or not finding.is_fine
        ]
        lines = [
            f'[{"+" if finding.is_fine else "-"}] {finding.name}: {finding.text}'
            for finding in shown
        ]

        return web.Response(
            status=200 if is_ready else 503,
            text='\n'.join([*lines, 'ready' if is_ready else 'not ready', '']),
        )

    return page


def build_metrics_page(expose: Callable[[str], tuple[bytes, str]]) -> Page:
    """Build a page with the metrics, as returned by the function for the accepted types."""

    async def page(request: web.BaseRequest) -> web.Response:
        body, content_type = expose(request.headers.get('Accept', ''))
        return web.Response(body=body, headers={'Content-Type': content_type})

    return page


def make_plain(result: Any) -> Any:
    """Make any value suitable for JSON: unsupported values are converted to strings."""
    try:
        jsons.dumps(result)
    except (TypeError, ValueError):
        return _make_text(result)
    return result


def _make_text(result: Any) -> str:
    try:
        return str(result)
    except Exception as error:
        return f'<{type(result).__name__}: {type(error).__name__}>'
