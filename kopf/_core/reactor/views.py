"""
Views: one object as it is known at one moment, with everything needed for decisions about it.

A view never changes. Its parts are computed on first use, from the state received from the server.
The users' functions get copies: their in-place modifications affect neither the view nor each
other.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from kopf._cogs.configs import conventions
from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import lazies
from kopf._cogs.structs import (
    bodies,
    concealments,
    dicts,
    diffs,
    finalizers,
    objects,
    patches,
    references,
)
from kopf._core.actions import loggers, progression
from kopf._core.engines.reconciling import levels, relatives
from kopf._core.intents import causes, filters, handlers, reasons, registries
from kopf._core.reactor import cycles, inventory, sites

_NO_LEVELS: levels.Levels = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """When an object is viewed, and how much of our own changes has come back by then."""

    now: float = 0.0  # loop time
    is_awaiting: bool = False  # whether our own changes have not come back yet
    is_certain: bool = True  # whether the known state includes all our own changes anyway
    is_synced: bool = True  # whether all owned and watched objects are known


_UNTIMED = Moment()


class View:
    """One object at one moment."""

    served: sites.Served
    raw: bodies.RawBody  # the newest known state
    version: str | None  # of that state
    memo: Any
    cycle: inventory.CycleMemory
    outbox: inventory.Outbox | None
    patch: patches.Patch  # by the users' functions
    is_accompanied: bool  # whether daemons or timers should run for the object, or still run
    is_alive: bool  # whether any of them runs and blocks the deletion
    # Whether the state could not change since the event handlers were called with it.
    is_fresh: bool
    moment: Moment
    level_states: levels.Levels

    site: sites.Site
    persistence: settings_.PersistenceSettings
    registry: registries.ChangingRegistry
    selectors: causes.Selectors | None
    roster: registries.Roster

    def __init__(
        self,
        served: sites.Served,
        raw: bodies.RawBody,
        memory: inventory.Memory,
        patch: patches.Patch | None = None,
        *,
        is_accompanied: bool = False,
        is_fresh: bool = True,
        moment: Moment = _UNTIMED,
    ) -> None:
        site = served.site
        registry = site.registry._changing
        selectors = served.selectors
        vars(self).update(  # in one call, as there are several views in every cycle
            served=served,
            raw=raw,
            version=bodies.get_version(raw),
            memo=memory.memo,
            cycle=memory.cycle,
            outbox=memory.outbox,
            patch=patches.Patch() if patch is None else patch,
            is_accompanied=is_accompanied,
            is_alive=memory.is_alive,
            is_fresh=is_fresh,
            moment=moment,
            level_states=memory.level_states or _NO_LEVELS,
            site=site,
            persistence=site.settings.persistence,
            registry=registry,
            selectors=selectors,
            roster=registry.survey(served.resource, selectors),
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f'Views do not change, {name} too: take another view.')

    @lazies.lazy
    def logger(self) -> causes.Logger:
        """The logger for messages that should not be posted as k8s-events."""
        return loggers.LocalObjectLogger(body=self.raw, settings=self.site.settings)

    @property
    def is_secret(self) -> bool:
        """Whether the values in the object must not be logged."""
        return references.is_secret(self.served.resource)

    @property
    def is_blocked(self) -> bool:
        """Whether our finalizer is on the object."""
        return finalizers.is_blocked(self.raw, self.persistence.finalizer)

    @property
    def is_surely_needed(self) -> bool:
        """Whether the finalizer is needed regardless of what has happened to the object."""
        return self.is_accompanied or self.roster.must_hold or self._is_needed_by_reconcilers

    @lazies.lazy
    def reconcilers(self) -> Sequence[handlers.ReconcileHandler]:
        """All level-triggered handlers of the resource."""
        return self.served.reconcilers

    @property
    def _is_needed_by_reconcilers(self) -> bool:
        return any(map(self._is_for_deletion, self.reconcilers))

    @property
    def is_held(self) -> bool:
        """Whether daemons or level-triggered functions must end before the object is released."""
        return self.is_alive or any(
            self._is_for_deletion(handler) and not self.get_level(handler).is_finished
            for handler in self.reconcilers
        )

    def _is_for_deletion(self, handler: handlers.ReconcileHandler) -> bool:
        return handler.deletion and self.is_reconcilable(handler)

    def is_reconcilable(self, handler: handlers.ReconcileHandler) -> bool:
        """Return whether the level-triggered handler is for this object in its current state."""
        return not filters.is_selective(handler) or filters.match(handler, self.reconciling)

    def get_level(self, handler: handlers.ReconcileHandler) -> levels.Level:
        """Get the state of a level-triggered handler for this object."""
        return self.level_states.get(handler.id, levels.NEW)

    @lazies.lazy
    def reconciling(self) -> causes.ReconcilingCause:
        """The cause for all level-triggered handlers, with a patch and a body of their own."""
        body = objects.Body(dicts.copy_json(self.raw))
        return causes.ReconcilingCause(
            logger=loggers.ObjectLogger(body=self.raw, settings=self.site.settings),
            memo=self.memo,
            indices=self.site.indices,
            resource=self.served.resource,
            selectors=self.selectors,
            body=body,
            patch=patches.Patch(body=self.raw),
            deleting=finalizers.is_deletion_ongoing(self.raw),
        )

    def explain(
        self, handler: handlers.ReconcileHandler, triggers: frozenset[str]
    ) -> causes.ReconcilingCause:
        """Get the cause for one level-triggered handler, with what it is due for."""
        cause = self.reconciling
        known = self.site.caches.relations
        return dataclasses.replace(
            cause,
            triggers=triggers,
            owned=relatives.Owned(known, cause.body, cause.resource, handler.owns),
            related=relatives.Related(known, cause.body, cause.resource, handler.watches),
        )

    @property
    def _has_handlers(self) -> bool:
        return (
            bool(self.roster.members)
            or self.site.registry._spawning.has_handlers(self.served.resource, self.selectors)
            or any(handler.deletion for handler in self.reconcilers)
        )

    @property
    def is_ours(self) -> bool:
        """Whether our finalizer may be removed: this operator handles or handled the object."""
        return (
            self._has_handlers
            or self.persistence.diffbase_storage.fetch(body=self.stored) is not None
        )

    @property
    def is_concerned(self) -> bool:
        """Whether any handlers except for event handlers are or were interested in the object."""
        if self._has_handlers:
            return True
        is_passive = self.registry.is_empty and self.site.registry._spawning.is_empty
        return not is_passive and self.is_blocked

    @property
    def has_changes(self) -> bool:
        """Whether there are already changes to send."""
        return bool(self.patch) or (self.outbox is not None and not self.is_refused)

    @property
    def is_refused(self) -> bool:
        """Whether the unsent patch functions are known to be refused for this version."""
        return (
            self.outbox is not None
            and bool(self.outbox.fns)
            and self.outbox.refused == self.version
        )

    @lazies.lazy
    def pending(self) -> Mapping[str, Any]:
        """Our records not accepted yet, unless another writer has recorded a state since then."""
        if self.outbox is None or not self.outbox.own:
            return {}
        recorded = self.persistence.diffbase_storage.fetch(body=self._origin)
        return self.outbox.own if digest(recorded) == self.outbox.recorded else {}

    @lazies.lazy
    def stored(self) -> objects.Body:
        """The object for the storages, including our records not accepted yet."""
        if self.outbox is None or not self.pending:
            return self._origin
        return objects.Body(patches.merge(self.raw, self.pending))

    @lazies.lazy
    def _origin(self) -> objects.Body:
        """The object for the storages, exactly as received."""
        return objects.Body(self.raw)

    @lazies.lazy
    def body(self) -> objects.Body:
        """The object for filters and handlers; a copy if any functions could modify it."""
        return objects.Body(dicts.copy_json(self.raw) if self.roster.has_callbacks else self.raw)

    @property
    def has_versions(self) -> bool:
        """Whether the object is served under several versions of its resource."""
        return self.site.memories.has_versions(self.served.resource)

    @property
    def is_held_by_twins(self) -> bool:
        """
        Whether the object being deleted must still be handled under other versions of its resource.
        """
        return self.has_versions and any(
            twin.is_alive or (not twin.cycle.is_released and self._may_hold(other))
            for other, twin in self._iter_twins()
        )

    @property
    def is_needed_by_twins(self) -> bool:
        """Whether our finalizer can be needed under other versions of the resource."""
        return self.has_versions and any(
            self._may_hold(other) or self._has_daemons(other) for other, _ in self._iter_twins()
        )

    def _has_daemons(self, resource: references.Resource) -> bool:
        selectors = self.served.get_selectors(resource)
        return self.site.registry._spawning.has_handlers(resource, selectors)

    def _may_hold(self, resource: references.Resource) -> bool:
        return self.registry.survey(resource, self.served.get_selectors(resource)).may_hold

    def _iter_twins(self) -> Iterator[tuple[references.Resource, inventory.Memory]]:
        return self.site.memories.iter_twins(inventory.identify(self.raw), self.served.resource)

    @lazies.lazy
    def new(self) -> bodies.BodyEssence:
        """The current essence of the object; with digests instead of values if configured so."""
        return self._build_essence(self._origin)

    @lazies.lazy
    def plain(self) -> bodies.BodyEssence:
        """The current essence of the object, always with its values."""
        return self._extract_essence(self._origin) if self._is_digested else self.new

    @lazies.lazy
    def seen(self) -> cycles.Essence:
        """The current essence, sealed."""
        return cycles.seal(self.new)

    @lazies.lazy
    def old(self) -> bodies.BodyEssence | None:
        """The last handled essence, if any; identical to the new one if nothing has changed."""
        handled = self.cycle.handled
        if handled is not None:
            return self.new if handled == self.seen else handled.value
        return self.recorded

    @lazies.lazy
    def recorded(self) -> bodies.BodyEssence | None:
        """The last handled essence as recorded on the object, under any version of the resource."""
        storage = self.persistence.diffbase_storage
        is_ours = not conventions.is_custom(storage)
        if is_ours and storage._is_stored(body=self.stored, text=self.seen.text):
            return self.new

        fetched = storage.fetch(body=self.stored)
        if fetched is None:
            return None

        cleared = self._clear(fetched)
        return self._adopt_digests(cleared) if self.is_secret else cleared

    @lazies.lazy
    def cause(self) -> causes.ChangingCause:
        """The change of the object since its last handled state."""
        old, new = self._get_states()
        diff = diffs.EMPTY if old is new else diffs.diff(old, new)
        reason = reasons.detect_reason(
            self.raw,
            finalizer=self.persistence.finalizer,
            is_new=old is None,
            is_changed=bool(diff),
            is_initial=self.cycle.is_initial,
        )

        return causes.ChangingCause(
            logger=loggers.ObjectLogger(body=self.raw, settings=self.site.settings),
            memo=self.memo,
            indices=self.site.indices,
            resource=self.served.resource,
            selectors=self.selectors,
            body=self.body,
            patch=self.patch,
            old=old,
            new=new,
            diff=diff,
            reason=reason,
            initial=self.cycle.is_initial,
        )

    @lazies.lazy
    def is_blank(self) -> bool:
        """Whether the object certainly has no progress to read or remove, as is usual."""
        storage = self.persistence.progress_storage
        return not conventions.is_custom(storage) and storage._is_blank(self.stored)

    @lazies.lazy
    def state(self) -> progression.State:
        """The progress of all handlers of the resource, including those not selected now."""
        storage = self.persistence.progress_storage
        purpose = self.cause.reason.value
        if self.is_blank:
            state = progression.State(purpose=purpose).including(self.roster.known_ids)
        else:
            state = progression.State.read(
                storage, self.stored, self.roster.known_ids, purpose=purpose
            )

        own = self.cycle.own
        if own is None or finalizers.is_deletion_ongoing(self.raw):
            return state
        return state.knowing(own.ids, before=own.before.digest, after=own.after.digest)

    @lazies.lazy
    def base(self) -> cycles.Essence | None:
        """
        The essence that the first handlers of an unfinished cycle have seen or left, if known.
        """
        base = self.cycle.base
        if self.state.is_begun:
            record = self.persistence.progress_storage.fetch(key=cycles.BASE_ID, body=self.stored)
            base = base if record is None else cycles.unseal(record.get('message'))

        own = self.cycle.own
        if own is None or base not in (None, own.before):
            return base

        finished = [state for state in self.state.values() if state.finished]
        is_behind = base is not None and any(
            state.essence == own.before.digest for state in finished
        )
        # Some handlers can have seen the object before the other handlers changed it.
        return base if is_behind else own.after

    def take_essence(self, body: Mapping[str, Any]) -> cycles.Essence:
        """Take the essence of another state of the same object."""
        return cycles.seal(self._build_essence(objects.Body(body)))

    def is_essential(self, patch: patches.Patch) -> bool:
        """
        Return whether the users' changes can affect the essence of the object, judging by the
        fields.
        """
        if not len(patch):
            return False
        if patch.keys() - {'status'}:
            return True
        return any(not field or field[0] == 'status' for field in self.roster.extra_fields)

    def isolate(self) -> causes.ChangingCause:
        """Get the cause with a body that handlers may modify in place."""
        if self.body._holder.content is self.raw:
            self.body._replace_with(dicts.copy_json(self.raw))
        return self.cause

    @lazies.lazy
    def _is_digested(self) -> bool:
        return self.persistence.secrets == 'digests' and self.is_secret

    @property
    def _salt(self) -> str:
        return str(dicts.resolve(self.raw, ('metadata', 'uid'), ''))

    def _get_states(self) -> tuple[bodies.BodyEssence | None, bodies.BodyEssence]:
        """Get the last handled and the current state for handlers, with values if known."""
        old = self.old
        new = self.plain
        if old is None or not self._is_digested:
            return old, new
        if old is self.new:
            return new, new

        restored = concealments.restore(
            cast(Mapping[str, Any], old), cast(Mapping[str, Any], new), self._salt
        )
        return cast(bodies.BodyEssence, restored), new

    def _adopt_digests(self, old: bodies.BodyEssence) -> bodies.BodyEssence:
        """
        Convert the stored state to how it would be stored now, as the setting could have changed.
        """
        kept = cast(Mapping[str, Any], old)
        if self._is_digested:
            return cast(bodies.BodyEssence, concealments.digest(kept, self._salt))
        return cast(
            bodies.BodyEssence,
            concealments.restore(kept, cast(Mapping[str, Any], self.new), self._salt),
        )

    def _build_essence(self, body: objects.Body) -> bodies.BodyEssence:
        essence = self._extract_essence(body)
        if not self._is_digested:
            return essence
        return cast(
            bodies.BodyEssence, concealments.digest(cast(Mapping[str, Any], essence), self._salt)
        )

    def _extract_essence(self, body: objects.Body) -> bodies.BodyEssence:
        built = self.persistence.diffbase_storage.build(
            body=body, extra_fields=self.roster.extra_fields
        )
        return self._clear(built)

    def _clear(self, essence: bodies.BodyEssence) -> bodies.BodyEssence:
        """Remove the progress; custom storages may do it in place, ours never do."""
        storage = self.persistence.progress_storage
        if conventions.is_custom(storage):
            return storage.clear(essence=conventions.copy_essence(essence, fully=True))
        return essence if storage._is_clear(essence) else storage.clear(essence=essence)


def digest(essence: Mapping[str, Any] | None) -> str | None:
    """Return the digest of an essence, if there is one."""
    return None if essence is None else cycles.seal(essence).digest
