"""
Paths: how admission handlers are presented to API servers, and found when these call.

Usually, a handler is a webhook, and the id of the handler is the path of the webhook. Handlers of
the same id, such as one function with several decorators, are one webhook if all their differences
can be expressed in its rules; otherwise, they are several webhooks, with numbers in their paths.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kopf._core.intents import callbacks, causes, handlers

SLUG_LIMIT = 150
"""The maximum number of characters in a slug: the whole name can have up to 253 of them."""

_UNACCEPTABLE = re.compile(r'[^a-z0-9.-]')


class Requirement(NamedTuple):
    """A requirement for a label, in terms of the API."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Traits(NamedTuple):
    """The properties of a webhook that are common for all of its rules."""

    type: causes.WebhookType
    labels: tuple[Requirement, ...]
    is_persistent: bool
    has_side_effects: bool
    ignores_failures: bool


@dataclasses.dataclass(frozen=True)
class Webhook:
    """One webhook, as API servers see it, and the handlers behind it."""

    id: str  # unique; the path in the URLs
    slug: str  # unique too; the name, also in paths where only names are accepted
    traits: Traits
    handlers: Sequence[handlers.WebhookHandler]


def build_webhooks(declared: Iterable[handlers.WebhookHandler]) -> list[Webhook]:
    """Group the handlers into webhooks, in the order of their declaration."""
    groups: dict[tuple[str, Traits], list[handlers.WebhookHandler]] = {}
    for handler in declared:
        groups.setdefault((handler.id, build_traits(handler)), []).append(handler)
    ids = make_unique([id for id, _ in groups])
    slugs = make_unique([build_slug(id) for id in ids])
    return [
        Webhook(id, slug, traits, tuple(group))
        for id, slug, ((_, traits), group) in zip(ids, slugs, groups.items(), strict=True)
    ]


def find_handlers(webhooks: Sequence[Webhook], path: str) -> list[handlers.WebhookHandler]:
    """Find the handlers by the path of their webhook, or by their id if several share it."""
    found = [webhook for webhook in webhooks if webhook.id == path] or [
        webhook for webhook in webhooks if webhook.slug == path
    ]
    chosen = [handler for webhook in found for handler in webhook.handlers]
    return chosen or [
        handler for webhook in webhooks for handler in webhook.handlers if handler.id == path
    ]


def build_traits(handler: handlers.WebhookHandler) -> Traits:
    return Traits(
        handler.type,
        tuple(build_requirements(handler.labels)),
        bool(handler.persistent),
        bool(handler.side_effects),
        bool(handler.ignore_failures),
    )


def build_requirements(labels: callbacks.MetaFilter | None) -> list[Requirement]:
    """Convert the labels to the terms of the API, except for functions, which it cannot call."""
    return [
        requirement
        for key, criterion in (labels or {}).items()
        if (requirement := _build_requirement(key, criterion)) is not None
    ]


def _build_requirement(key: str, criterion: object) -> Requirement | None:
    if criterion is callbacks.PRESENT:
        return Requirement(key, 'Exists')
    if criterion is callbacks.ABSENT:
        return Requirement(key, 'DoesNotExist')
    return Requirement(key, 'In', (criterion,)) if isinstance(criterion, str) else None


def build_slug(id: str) -> str:
    """Convert any id to a name acceptable for the API; acceptable ids are unchanged."""
    parts = _UNACCEPTABLE.sub('-', id.lower().replace('/', '.')).split('.')
    slug = '.'.join(part.strip('-') for part in parts if part.strip('-'))
    return slug[:SLUG_LIMIT].strip('-.') or 'handler'


def make_unique(names: Sequence[str]) -> list[str]:
    """Add numbers to the repeated names, so that all are different."""
    counts = collections.Counter(names)
    taken = set(names)
    unique: list[str] = []

    for name in names:
        candidate = name
        number = 0
        while counts[name] > 1 and candidate in taken:
            number += 1
            candidate = f'{name}-{number}'
        taken.add(candidate)
        unique.append(candidate)

    return unique
