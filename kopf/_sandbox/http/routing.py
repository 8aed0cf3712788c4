"""
Routing: from a call received over the network to its response. No network here, and no HTTP
library.

A call is authenticated, its path is parsed, the user is authorized, and then it is handled as a
request to a resource or answered with a document. All errors become ``Status`` objects.
"""

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kopf._sandbox import clusters, faults
from kopf._sandbox.auth import authn, rbac
from kopf._sandbox.codec import parsing
from kopf._sandbox.endpoints import negotiation, verbs
from kopf._sandbox.http import deadlines, nonresource, warning_headers
from kopf._sandbox.meta import discovery, errors, kinds, request_info, requests

logger = logging.getLogger('kopf.sandbox')

PRETTY_AGENTS = ('curl', 'Wget', 'Mozilla/5.0')


@dataclasses.dataclass(frozen=True)
class Call:
    """A call received over the network. The names of the headers are case-insensitive."""

    method: str
    path: str
    options: Mapping[str, str]  # the query
    headers: Mapping[str, str]
    certificate: Mapping[str, Any] | None  # of the client, as decoded by `ssl`
    read_body: Callable[[], Awaitable[bytes]]
    address: str  # the address of the server: 127.0.0.1:6443

    @property
    def is_pretty(self) -> bool:
        """Whether to indent the JSON: for browsers and similar clients, or if requested."""
        asked = self.options.get('pretty')
        if asked is not None:
            return asked in ('1', 'true')
        return self.headers.get('User-Agent', '').startswith(PRETTY_AGENTS)


class Router:
    """Answers the calls to one cluster. Any number of calls may be in progress at once."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster
        self._handler = verbs.Handler(cluster)
        self._library = nonresource.Library(cluster)

    async def answer(self, call: Call, asked: faults.Asked) -> negotiation.Answer:
        """
        Answer any call, and fill in its record.

        Raises only `faults.Cut` if the connection must be closed, and the errors of reading the
        body.
        """
        warnings: list[str] = []
        try:
            answer = await self._answer(call, asked, warnings)
        except errors.ApiError as e:
            answer = build_refusal(e, call.headers.get('Accept', ''), call.is_pretty)
        except (faults.Cut, OSError):
            raise
        except RecursionError:  # e.g. for a deep patch of a deep object
            answer = build_refusal(
                errors.bad_request(parsing.TOO_DEEP), call.headers.get('Accept', ''), call.is_pretty
            )
        except Exception as e:
            logger.exception('The sandbox has failed on %s %s.', call.method, call.path)
            error = errors.internal(f'{type(e).__name__}: {e}')
            answer = build_refusal(error, call.headers.get('Accept', ''), call.is_pretty)

        headers = [
            *answer.headers,
            *(('Warning', text) for text in warning_headers.build_headers(warnings)),
        ]
        return dataclasses.replace(answer, headers=headers) if warnings else answer

    async def _answer(
        self, call: Call, asked: faults.Asked, warnings: list[str]
    ) -> negotiation.Answer:
        target = request_info.parse_path(call.path)
        verb = request_info.detect_verb(call.method, target, call.options) if target else None
        if target is not None:
            asked.verb = verb or ''
            asked.group = target.group
            asked.plural = target.plural
            asked.namespace = target.namespace
            asked.name = target.name
            asked.subresource = target.subresource

        if verb != 'watch':
            deadlines.check_timeout(call.options.get('timeout', ''))
        await self._cluster.faults.afflict(asked)
        user = self._authenticate(call)
        asked.user = user.name
        if target is None:
            return self._answer_with_document(call, user)

        self._authorize(user, rbac.attributes_of(call.method, target, call.options))
        resource = self._cluster.catalog.find(target.group, target.version, target.plural)
        if resource is None or not is_reachable(resource, target, verb):
            return self._answer_unknown(target)
        if verb is None or not is_served(resource, target, verb):
            raise refuse_method(resource, target, call.method)

        request = requests.Request(
            verb,
            resource,
            user,
            target.namespace,
            target.name,
            target.subresource,
            call.options,
            dry_run=bool(call.options.get('dryRun')),
            field_manager=choose_manager(call),
            warnings=warnings,
        )
        asking = verbs.Asking(
            await call.read_body(),
            call.headers.get('Content-Type', ''),
            call.headers.get('Accept', ''),
            call.is_pretty,
        )
        return await self._handler.handle(request, asking)

    def _answer_with_document(self, call: Call, user: requests.User) -> negotiation.Answer:
        if not nonresource.is_public(call.path):
            self._authorize(user, rbac.Attributes(call.method.lower(), path=call.path))
        accept = call.headers.get('Accept', '')
        found = self._library.find(
            call.path,
            accept,
            address=call.address,
            pretty=call.is_pretty,
            options=call.options,
        )
        if (
            found is not None
            and call.method not in ('GET', 'HEAD')
            and self._library.is_read_only(call.path)
        ):
            raise errors.method_not_allowed()
        return NOT_FOUND if found is None else found

    def _answer_unknown(self, target: request_info.Target) -> negotiation.Answer:
        """Return the plain 404, but raise the API's error for the groups of built-in resources."""
        if any(
            resource.group == target.group and not resource.custom
            for resource in self._cluster.catalog
        ):
            raise errors.no_such_resource()
        return NOT_FOUND

    def _authenticate(self, call: Call) -> requests.User:
        now = self._cluster.sources.now().timestamp()
        authorization = call.headers.get('Authorization', '')
        user = self._cluster.authenticator.authenticate(authorization, call.certificate, now)
        return authn.impersonate(user, call.headers.items(), self._cluster.authorizer.authorize)

    def _authorize(self, user: requests.User, attributes: rbac.Attributes) -> None:
        decision = self._cluster.authorizer.authorize(user, attributes)
        if not decision.allowed:
            raise rbac.forbidden_error(user, attributes, decision.reason)


NOT_FOUND = negotiation.Answer(404, b'404 page not found\n', 'text/plain; charset=utf-8')


def is_reachable(resource: kinds.Resource, target: request_info.Target, verb: str | None) -> bool:
    """Return whether the path has a namespace if, and only if, the resource requires it."""
    if not resource.namespaced or target.namespace:
        return resource.namespaced or not target.namespace
    return not target.name and not (resource.custom and verb in ('create', 'deletecollection'))


def is_served(resource: kinds.Resource, target: request_info.Target, verb: str) -> bool:
    """
    Return whether the verb is served for the resource or its subresource. Raises the API's 404 for
    unknown subresources.
    """
    if not target.subresource:
        is_everywhere = resource.namespaced and not target.namespace
        return verb in resource.verbs and not (
            is_everywhere and verb in ('create', 'deletecollection')
        )

    subverbs = {
        subresource.name: subresource.verbs for subresource in discovery.list_subresources(resource)
    }
    if target.subresource not in subverbs and resource.custom:
        raise errors.not_found(resource.group, resource.plural, target.name)
    if target.subresource not in subverbs:
        raise errors.no_such_resource()
    return verb in subverbs[target.subresource]


def refuse_method(
    resource: kinds.Resource, target: request_info.Target, method: str
) -> errors.ApiError:
    """Build the error for an unsupported method; it is worded differently for custom resources."""
    if resource.custom and method in ('PUT', 'PATCH') and not target.name:
        return errors.bad_request('name must be provided')
    if resource.custom and method == 'OPTIONS':
        return errors.unsupported_verb(resource.group, resource.plural)
    return errors.method_not_allowed()


def choose_manager(call: Call) -> str:
    """Return the field manager; by default, the name of the client's program."""
    agent = call.headers.get('User-Agent', '').split('/')[0]
    return (
        call.options.get('fieldManager')
        or ''.join(filter(str.isprintable, agent))[:128]
        or 'unknown'
    )


def build_refusal(error: errors.ApiError, accept: str, pretty: bool) -> negotiation.Answer:
    """Build the response with the error's status."""
    try:
        form = negotiation.choose_form(accept, shapes=True)
    except errors.ApiError:
        form = negotiation.Form()

    headers = [] if error.retry_after is None else [('Retry-After', str(error.retry_after))]
    return negotiation.Answer(
        error.code,
        negotiation.encode_value(error.status, form, pretty=pretty),
        form.media_type,
        headers,
    )
