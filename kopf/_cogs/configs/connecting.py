"""
Connecting: the settings of requests to the API, of watch-streams, and of the scanning of the
cluster.
"""

import dataclasses
from collections.abc import Iterable

from kopf._cogs.configs import selections

Backoffs = float | Iterable[float]
"""Seconds before each next attempt: one number, or a re-iterable of numbers, even infinite."""


@dataclasses.dataclass
class NetworkingSettings:
    """
    How requests to the API are made, limited and retried; those of watch-streams too, unless stated
    otherwise.
    """

    request_timeout: float | None = 300
    """
    Seconds for a whole request, from connecting to the last byte of the response; watch-streams are
    not limited by it. Less detects dead connections sooner, but breaks slow listings of big
    clusters; ``None`` means no limit.
    """

    connect_timeout: float | None = None
    """
    Seconds to establish a connection, as a part of the request. Less detects unreachable servers
    sooner; ``None`` means that only ``request_timeout`` limits it.
    """

    error_backoffs: Backoffs = (1, 1, 2, 3, 5, 8, 13, 21)
    """
    Seconds between the attempts of a failed request, each prolonged at random by up to a tenth. N
    delays are N+1 attempts, then the last error escalates; one number is one delay; an empty
    sequence means no retries. More and longer delays survive longer outages, but keep the object
    (and nothing else) waiting during that time.
    """

    enforce_retry_after: bool = False
    """
    Whether the delay requested by the server replaces our own one. If not, the longer of the two is
    used. In no case is the request retried sooner than the server asks; the number of attempts is
    up to ``error_backoffs``.
    """

    trust_env: bool = False
    """
    Whether the built-in logins make connections that respect ``HTTP_PROXY``, ``HTTPS_PROXY``,
    ``NO_PROXY`` and ``~/.netrc``; the latter only for connections that have no other credentials.
    If not, these are ignored.
    """

    inflight_limit: int | None = 25
    """
    How many requests to one server can be in progress at once, besides watch-streams; further
    requests wait for their turn. Less is gentler to the server in bursts (e.g. at the start), more
    is faster if the server is far away, and takes more memory: each request has its own connection.
    ``None`` means no limit.
    """

    rate_limit: float | None = None
    """
    How many requests per second can be made to one server on average, including watch-streams;
    further requests wait for their turn. ``None`` means no limit, as the servers protect themselves
    by asking clients to retry later.
    """

    rate_burst: int = 20
    """
    How many requests can be made at once after a quiet time, if there is a ``rate_limit``. Less
    makes requests more even, more lets short bursts pass without waiting.
    """


@dataclasses.dataclass
class WatchingSettings:
    """How resources are listed and watched."""

    server_timeout: float | None = None
    """
    Seconds after which the server is asked to end a watch-stream, which is then continued by a new
    one. Less spreads the load over several servers sooner, more makes fewer requests. ``None``
    means a new random time of 5 to 10 minutes for each stream.
    """

    client_timeout: float | None = None
    """
    Seconds, including the connecting, after which the operator itself ends a watch-stream and
    continues it by a new one. It makes sense only if longer than ``server_timeout``, for servers
    that ignore the latter; ``None`` means never.
    """

    connect_timeout: float | None = None
    """
    Seconds to establish the connection of a watch-stream. ``None`` means the same as for other
    requests: ``networking.connect_timeout``, or else ``networking.request_timeout``.
    """

    reconnect_backoff: float = 0.1
    """
    Seconds between the end of one watch-stream and the start of the next one, if there are no
    errors. Less reduces the delays of handling, more reduces the load on the API if the streams are
    short.
    """

    inactivity_timeout: float = 70.0
    """
    Seconds of silence after which a watch-stream is considered dead and is replaced, with nothing
    lost. Servers are asked for bookmarks, usually once a minute: less than that replaces healthy
    streams. A huge value disables it.
    """

    chunk_size: int | None = 500
    """
    How many objects are requested in one page of a listing. Less needs less memory at once, more
    makes fewer requests. ``None`` means all objects in one request; 0 is sent as is, and is up to
    the server.
    """

    initial_streaming: bool = False
    """
    Whether the existing objects are received in the watch-stream itself, without a listing: it is
    cheaper for servers, but needs Kubernetes 1.34 or newer.
    """

    label_selectors: selections.Selections = dataclasses.field(
        default_factory=selections.Selections
    )
    """
    Labels of the objects to list and watch, by resources: ``label_selectors['pods'] =
    'app=web,tier!=test'``. Other objects are never seen. If several keys match a resource, all of
    their conditions are required.
    """

    field_selectors: selections.Selections = dataclasses.field(
        default_factory=selections.Selections
    )
    """
    Fields of the objects to list and watch, by resources: ``field_selectors['pods'] =
    'spec.nodeName=node1'``. Other objects are never seen. If several keys match a resource, all of
    their conditions are required.
    """

    shard_selectors: selections.Selections = dataclasses.field(
        default_factory=selections.Selections
    )
    """
    Shares of the objects to list and watch, by resources; needs Kubernetes 1.36 with
    ``ShardedListAndWatch``. If several keys match a resource, the first defined one is used. With
    any of them, operators of the same priority do not pause each other.
    """


@dataclasses.dataclass
class ScanningSettings:
    """How the resources and namespaces of the cluster are discovered."""

    disabled: bool = False
    """
    Whether to disable the watching of namespaces and custom resource definitions: then, only the
    exactly named namespaces are served, and only the resources found at the start. It needs fewer
    permissions.
    """
