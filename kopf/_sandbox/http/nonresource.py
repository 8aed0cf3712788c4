"""
Non-resource URLs: discovery, OpenAPI, the version, and the health.
"""

from collections.abc import Mapping
from typing import Any

from kopf._sandbox import clusters
from kopf._sandbox.endpoints import negotiation
from kopf._sandbox.http import health, server_metrics
from kopf._sandbox.meta import discovery, errors
from kopf._sandbox.openapi import v2

HEALTH = health.ROOTS
PLAIN = 'text/plain; charset=utf-8'
SWAGGER_JSON = ('', '*/*', 'application/*', 'application/json')


def is_public(path: str) -> bool:
    """Return whether a document is available without authorization."""
    return path.rstrip('/') in HEALTH


class Library:
    """The documents of a cluster; they change only with its catalog."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster

    def find(
        self, path: str, accept: str, *, address: str, pretty: bool, options: Mapping[str, str]
    ) -> negotiation.Answer | None:
        """Return the document at a path, if any. Raises `ApiError` if it is not acceptable."""
        path = path.rstrip('/') or '/'
        if path in HEALTH or path.startswith(tuple(f'{root}/' for root in HEALTH)):
            text = health.describe(path, options)
            return None if text is None else negotiation.Answer(200, text.encode(), PLAIN)

        if path == '/metrics':
            body = server_metrics.render(self._cluster.store, self._cluster.catalog)
            return negotiation.Answer(200, body, server_metrics.MEDIA_TYPE)

        if path == '/version':
            return self._find_version(accept)
        if path == '/openapi/v2':
            return self._find_swagger(accept)
        if path.startswith('/openapi/v3/'):
            return self._find_openapi(path.removeprefix('/openapi/v3/'))

        aggregated = path in ('/api', '/apis') and self._find_aggregated(path, accept)
        if aggregated:
            return aggregated

        value = self._find_value(path, address)
        if value is None:
            return None

        form = negotiation.choose_form(accept, shapes=False, custom=not self.is_read_only(path))
        body = negotiation.encode_value(value, form, pretty=pretty)
        return negotiation.Answer(200, body, form.media_type)

    def is_read_only(self, path: str) -> bool:
        """Return whether a document is served only for GET; most of them ignore the method."""
        match path.strip('/').split('/'):
            case ['version' | 'api'] | ['api', _]:
                return True
            case ['apis', group, _]:
                return any(
                    resource.group == group and not resource.custom
                    for resource in self._cluster.catalog
                )
            case _:
                return False

    def _find_value(self, path: str, address: str) -> dict[str, Any] | None:
        catalog = self._cluster.catalog
        match path.strip('/').split('/'):
            case ['']:
                return {
                    'paths': [
                        '/api',
                        '/api/v1',
                        '/apis',
                        *HEALTH,
                        '/metrics',
                        '/openapi/v2',
                        '/openapi/v3',
                        '/version',
                    ]
                }
            case ['openapi', 'v3']:
                return self._cluster.publisher.build_index()
            case ['api']:
                return discovery.build_core_versions(address)
            case ['apis']:
                return discovery.build_groups(catalog)
            case ['api', version]:
                return self._find_resources('', version)
            case ['apis', group]:
                return discovery.build_group(catalog, group)
            case ['apis', group, version]:
                return self._find_resources(group, version)
            case _:
                return None

    def _find_resources(self, group: str, version: str) -> dict[str, Any] | None:
        """Return the resources of a version. Raises 404 for unknown versions of built-in groups."""
        catalog = self._cluster.catalog
        found = discovery.build_resources(catalog, group, version)
        if found is None and any(
            resource.group == group and not resource.custom for resource in catalog
        ):
            raise errors.no_such_resource()
        return found

    def _find_aggregated(self, path: str, accept: str) -> negotiation.Answer | None:
        """Return the aggregated discovery if the client accepts it, even as the second choice."""
        for media_type, parameters in negotiation.parse_accept(accept):
            asked = parameters.get('g'), parameters.get('v'), parameters.get('as')
            if (
                media_type in (negotiation.JSON, negotiation.YAML)
                and asked == discovery.AGGREGATED_KIND
            ):
                value = discovery.build_aggregated(self._cluster.catalog, core=path == '/api')
                body = negotiation.encode_value(value, negotiation.Form(media_type))
                return negotiation.Answer(
                    200, body, discovery.AGGREGATED_MEDIA_TYPE.replace(negotiation.JSON, media_type)
                )

        return None

    def _find_version(self, accept: str) -> negotiation.Answer:
        """Return the version: in JSON only, ignoring the requested shape."""
        if not any(
            media_type in ('', '*/*', negotiation.JSON)
            for media_type, _ in negotiation.parse_accept(accept)
        ):
            raise errors.not_acceptable((negotiation.JSON,))
        return negotiation.Answer(
            200,
            negotiation.encode_value(discovery.build_version(), negotiation.Form(), pretty=True),
        )

    def _find_openapi(self, path: str) -> negotiation.Answer:
        found = self._cluster.publisher.find_document(path)
        if found is None:
            return negotiation.Answer(404, media_type='')
        return negotiation.Answer(200, found.body, headers=[('ETag', f'"{found.etag}"')])

    def _find_swagger(self, accept: str) -> negotiation.Answer:
        """Return the definitions of all resources, in JSON unless protobuf is preferred."""
        known = (*SWAGGER_JSON, *v2.MEDIA_TYPES)
        preferred = next(
            (
                media_type
                for media_type, _ in negotiation.parse_accept(accept)
                if media_type in known
            ),
            None,
        )
        if preferred is None:
            negotiation.choose_form(accept, shapes=False)
        is_packed = preferred in v2.MEDIA_TYPES
        publisher = self._cluster.publisher
        found = publisher.load_packed_swagger() if is_packed else publisher.load_swagger()
        media_type = v2.MEDIA_TYPE if is_packed else negotiation.JSON

        return negotiation.Answer(
            200, found.body, media_type, headers=[('ETag', f'"{found.etag}"')]
        )
