"""
Operator plans: what an operator is made of, chosen before it runs.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

from kopf._cogs.aiokits import flags
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import references, vaults
from kopf._core.actions import lifecycles
from kopf._core.engines.probing import endpoints
from kopf._core.intents import registries
from kopf._core.reactor import inventory, observation


class SettingsError(Exception):
    """Some settings have invalid values."""


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """The configuration of an operator to run."""

    registry: registries.OperatorRegistry
    settings: settings_.OperatorSettings
    lifecycle: lifecycles.LifecycleFn
    memo: Any
    vault: vaults.Vault
    memories: inventory.Memories
    insights: observation.Insights
    clusterwide: bool
    patterns: Collection[references.NamespacePattern]
    stop_flag: flags.Flag | None = None
    ready_flag: flags.Flag | None = None
    identity: str | None = None  # among other operators; generated if absent
    endpoint: endpoints.Endpoint | None = None  # of the probes and metrics
