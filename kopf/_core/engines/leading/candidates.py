"""
Candidates: a replica in the election, from the first look at the Lease to its release.

A thin shell around the decisions of `elections`. The Lease is also watched, if permitted, so that a
released one is taken at once; without that, it is read from time to time.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from kopf._cogs.aiokits import bells
from kopf._cogs.clients import errors, fences, limits, outages, requests
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.configs import selections
from kopf._cogs.structs import credentials, leaderships, references
from kopf._core.engines.leading import elections, replicas

logger = logging.getLogger(__package__)

RELEASE_TIMEOUT = 5.0
"""Seconds for all attempts to release the Lease; then it expires by itself."""

PRECISION = 0.001
"""
Seconds to wait beyond a moment, to be sure that it has passed: event loops can be a bit early.
"""

FAILURES = errors.RequestError, TimeoutError, OSError

_OPTIONS = requests.Options(answers=(403, 404, 409, 422, 429), backoffs=(), is_repeatable=True)

_VERBS: Mapping[type[object], str] = {elections.Read: 'get', elections.Write: 'patch'}


class Candidate:
    """
    One replica in its election. Belongs to the event loop of the operator; it is run once.

    The fence is open while the replica leads. The holder is that of the Lease as last seen.
    """

    def __init__(
        self,
        place: replicas.Place,
        *,
        identity: str,
        context: requests.Context,
        fence: fences.Fence,
    ) -> None:
        terms = replicas.choose_terms(context.settings.leadership)
        self.place = place
        self.identity = identity
        self._troubles: dict[str, str] = {}  # by the verbs
        self.body: Mapping[str, Any] | None = None  # the Lease as last written
        self._context = isolate(context, place.name)
        self._fence = fence
        self._state = elections.State(identity, terms)
        self._promoted = asyncio.Event()
        self._bell = bells.Bell()
        self._announced: str | None = None  # the holder that was logged
        self.epoch_led: int | None = None  # when it has led, if ever
        self._fence.announce(str(place), terms.deadline)

    @property
    def trouble(self) -> str:
        """Why the Lease cannot be read or written now, if so."""
        return ' '.join(self._troubles.values())

    @property
    def is_leading(self) -> bool:
        return self._state.role is elections.Role.LEADING and self._fence.is_open

    @property
    def is_standing_by(self) -> bool:
        return self._state.role is elections.Role.FOLLOWING

    @property
    def holder(self) -> str:
        return self._state.holder

    @property
    def epoch(self) -> int:
        """The number of the changes of holders so far."""
        return self._state.transitions

    async def wait_until_promoted(self) -> None:
        await self._promoted.wait()

    async def run(self) -> None:
        """
        Take part in the election until cancelled; then the Lease must be released by `resign`.

        Raises `LeadershipLostError` when the leadership is lost, `LoginError` if there are no
        credentials.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(), name=f'watcher of the Lease {self.place}')
                group.create_task(self._campaign(), name=f'candidate for the Lease {self.place}')
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None

    async def resign(self) -> None:
        """Release the Lease if it is ours, in a limited time; `run` must have ended."""
        was_leading = self._state.role is elections.Role.LEADING and not self._fence.is_lost
        self._fence.revoke()
        state = self._state
        self._state = elections.resign(self._state)
        if not was_leading:
            return

        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._release(state)
        except (*FAILURES, credentials.LoginError) as error:
            logger.warning(
                'The Lease %s is not released, so other replicas wait until it expires: %s',
                self.place,
                str(error) or 'there is no answer.',
            )

    async def _campaign(self) -> None:
        while True:
            now = _read_clock()
            action = elections.decide(self._state, now=now, today=self._context.now())
            if isinstance(action, elections.Lose) or self._fence.is_lost:
                self._lose()
            elif isinstance(action, elections.Wait):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(action.until + PRECISION):
                        await self._bell.wait()
            else:
                await self._act(action)

    async def _act(self, action: elections.Read | elections.Write) -> None:
        """Read or write the Lease once, and conclude from the result."""
        since = self._fence.read_clocks()
        answer = await self._request(action)
        before = self._state
        self._state = elections.react(
            before,
            action,
            answer,
            since=since.loop,
            now=_read_clock(),
            chance=self._context.chance(),
        )
        if self._state.role is elections.Role.LEADING and self._state.renewed > before.renewed:
            self._fence.extend(since)
        self._announce(before.role)

    async def _request(self, action: elections.Read | elections.Write) -> elections.Answer:
        """Make one request in a limited time; failures are logged."""
        verb = _VERBS[type(action)]
        if isinstance(action, elections.Write) and action.version is None:
            verb = 'create'
        try:
            async with asyncio.timeout(self._measure_timeout()):
                body = await self._send(action)
        except errors.APIConflictError:
            return elections.Refusal.CONFLICT
        except errors.APINotFoundError as error:
            if verb != 'create':
                self._troubles.pop(verb, None)
                return elections.Refusal.ABSENT
            self._complain(verb, error)
        except FAILURES as error:
            self._complain(verb, error)
        else:
            lease = parse_lease(body)
            if lease is not None:
                self._note_success(verb, body)
                return lease
            self._complain(verb, errors.APIGarbledError('the answer is not a Lease.'))

        return elections.Refusal.FAILED

    def _measure_timeout(self) -> float:
        """Return the seconds for one request: the loss of the leadership must not wait for it."""
        timeout = self._state.terms.timeout
        state = self._state
        if state.role is not elections.Role.LEADING:
            return timeout
        return max(0.0, min(timeout, state.deadline - _read_clock()))

    def _note_success(self, verb: str, body: Mapping[str, Any]) -> None:
        self._troubles.pop(verb, None)
        if verb != 'get':
            self._troubles.clear()
            self.body = body

    async def _send(self, action: elections.Read | elections.Write) -> Any:
        if isinstance(action, elections.Read):
            return await requests.get(self.place.url, context=self._context, options=_OPTIONS)
        if action.version is not None:
            return await self._patch(action.spec, action.version)
        return await requests.post(
            self.place.parent_url,
            context=self._context,
            options=_OPTIONS,
            payload={
                'apiVersion': replicas.LEASES.api_version,
                'kind': replicas.LEASES.kind,
                'metadata': {'name': self.place.name, 'namespace': self.place.namespace},
                'spec': action.spec,
            },
        )

    async def _patch(self, spec: elections.Spec, version: str) -> Any:
        payload = {'metadata': {'resourceVersion': version}, 'spec': spec}
        return await requests.patch(
            self.place.url, context=self._context, payload=payload, options=_OPTIONS
        )

    async def _release(self, state: elections.State) -> None:
        """Release the Lease unless it has another holder already."""
        while state.version is not None and state.holder == self.identity:
            try:
                await self._patch(
                    elections.build_release(state, self._context.now()), state.version
                )
            except errors.APINotFoundError:
                return
            except errors.APIConflictError:
                body = await requests.get(self.place.url, context=self._context, options=_OPTIONS)
                lease = parse_lease(body) or elections.Refusal.ABSENT
                state = elections.observe(state, lease, now=_read_clock())
            else:
                logger.info('The replica %s has released the Lease %s.', self.identity, self.place)
                return

    async def _watch(self) -> None:
        """Watch the Lease while standing by; it is optional, so failures do not matter."""
        stream = event_streams.stream_events(
            replicas.LEASES,
            self.place.namespace,
            context=self._context,
            state=stream_states.StreamState(),
            refusals=(403, 404),
        )
        try:
            async with contextlib.aclosing(stream):
                async for item in stream:
                    if not self.is_standing_by:
                        return
                    if not isinstance(item, stream_states.Marker):
                        self._notice(item['type'] == 'DELETED', item['object'])
        except (errors.APIForbiddenError, errors.APINotFoundError) as error:
            logger.info(
                'The Lease %s is not watched, so a released one is noticed later: %s',
                self.place,
                error,
            )

    def _notice(self, is_gone: bool, body: Mapping[str, Any]) -> None:
        lease = None if is_gone else parse_lease(body)
        if body['metadata'].get('name') == self.place.name and (is_gone or lease is not None):
            self._state = elections.notice(
                self._state, lease or elections.Refusal.ABSENT, now=_read_clock()
            )
            self._announce(self._state.role)
            self._bell.ring()

    def _announce(self, before: elections.Role) -> None:
        """Log who leads if that has changed; when the replica is promoted, let others know."""
        role = self._state.role
        holder = self._state.holder
        if role is elections.Role.LEADING and before is not role:
            logger.info(
                'The replica %s leads: it holds the Lease %s, change #%d.',
                self.identity,
                self.place,
                self.epoch,
            )
            self.epoch_led = self.epoch
            self._promoted.set()
        elif role is elections.Role.FOLLOWING and holder not in (
            '',
            self.identity,
            self._announced,
        ):
            logger.info(
                'The replica %s stands by: the Lease %s is held by %s.',
                self.identity,
                self.place,
                holder,
            )
            self._announced = holder

    def _lose(self) -> None:
        self._fence.revoke()
        reason = (
            f'it is held by {self.holder}'
            if self.holder not in ('', self.identity)
            else f'it was not renewed in {self._state.terms.deadline} s'
        )
        raise leaderships.LeadershipLostError(
            f'The replica {self.identity} has lost the Lease {self.place}: {reason}. The operator '
            'stops.'
        )

    def _complain(self, verb: str, error: Exception) -> None:
        """Log a failure; refusals need rights or settings, others are expected to pass."""
        reason = (str(error) or 'there is no answer').rstrip('.')
        trouble = f'Cannot {verb} the Lease {self.place}: {reason}.'
        if isinstance(error, errors.APIForbiddenError):
            trouble += (
                f' Grant the verb {verb} for leases.coordination.k8s.io in the namespace '
                f'{self.place.namespace} to the service account of the operator.'
            )

        if isinstance(error, errors.APINotFoundError):
            trouble += f' Check that the namespace {self.place.namespace} exists.'
        is_refused = isinstance(error, errors.APIClientError)
        level = logging.ERROR if is_refused else outages.choose_level(error)
        is_repeated = self._troubles.get(verb) == trouble
        logger.log(logging.DEBUG if is_repeated else level, '%s', trouble)
        self._troubles[verb] = trouble


def isolate(context: requests.Context, name: str) -> requests.Context:
    """
    Make a context for the requests about the Lease: neither fenced, nor waiting for other requests.
    """
    settings = context.settings
    watching = dataclasses.replace(
        settings.watching,
        label_selectors=selections.Selections(),
        shard_selectors=selections.Selections(),
        field_selectors=selections.Selections({references.EVERYTHING: f'metadata.name={name}'}),
    )
    return dataclasses.replace(
        context,
        settings=dataclasses.replace(settings, watching=watching),
        gates=limits.Gates(),
        get_permit=fences.require_nothing,
    )


def parse_lease(body: Any) -> elections.Observed | None:
    """Parse a response or an event; ``None`` if it is not an object of the API."""
    metadata = body.get('metadata') if isinstance(body, Mapping) else None
    version = metadata.get('resourceVersion') if isinstance(metadata, Mapping) else None
    if not isinstance(version, str) or not isinstance(body, Mapping):
        return None
    spec = body.get('spec')
    return elections.Observed(version, spec if isinstance(spec, Mapping) else {})


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
