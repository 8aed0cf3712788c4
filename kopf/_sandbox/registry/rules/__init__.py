"""
Rules of the built-in kinds: the behaviour of kube-apiserver beyond the schemas.

There is a module per topic, each with its ``RULES``; here they are looked up by group and kind.
"""

from collections.abc import Mapping
from typing import Final

from kopf._sandbox.registry.rules import (
    admission_policies,
    clusters,
    configs,
    devices,
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
    **admission_policies.RULES,
    **clusters.RULES,
    **configs.RULES,
    **devices.RULES,
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
    """Return the rules of a kind; kinds without their own rules are treated as custom resources."""
    return BUILTIN.get((group, kind), CUSTOM)
