"""
Rules of the built-in kinds: what kube-apiserver does to them in code, beyond their schemas.

There is a module per topic, each with its ``RULES``; together they are found here by the group and kind.
"""

from collections.abc import Mapping
from typing import Final

from kopf._sandbox.registry.rules import (
    clusters,
    configs,
    entries,
    jobs,
    networks,
    permissions,
    pods,
    scaling,
    services,
    storages,
    webhooks,
    workloads,
)

BUILTIN: Final[Mapping[tuple[str, str], entries.Rules]] = {
    **clusters.RULES,
    **configs.RULES,
    **jobs.RULES,
    **networks.RULES,
    **permissions.RULES,
    **pods.RULES,
    **scaling.RULES,
    **services.RULES,
    **storages.RULES,
    **webhooks.RULES,
    **workloads.RULES,
}
CUSTOM: Final = entries.Rules(
    standard_finalizers=False,
    repeats_metadata=False,
    allows_unconditional_update=False,
    has_generation=True,
    is_bumped=entries.bumped_by_content,
)


def find_rules(group: str, kind: str) -> entries.Rules:
    """Find the rules of a kind; those that have no rules of their own are treated as custom ones."""
    return BUILTIN.get((group, kind), CUSTOM)
