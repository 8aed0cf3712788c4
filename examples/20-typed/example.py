import dataclasses
from typing import Annotated, Any, Literal

import kopf


@dataclasses.dataclass
class Backup:
    """When the database is saved, and for how long the copies are kept."""

    schedule: Annotated[str, kopf.Schema(pattern=r'^\S+ \S+ \S+ \S+ \S+$')]
    keep_days: Annotated[int, kopf.Schema(ge=1, le=100)] = 7


@dataclasses.dataclass
@kopf.rule('self.replicas <= 1 || self.engine == "postgres"', 'Only postgres has replicas.')
class DatabaseSpec:
    engine: Annotated[Literal['postgres', 'mysql'], kopf.Column('Engine'), kopf.Immutable]
    replicas: Annotated[int, kopf.Schema(ge=0), kopf.Column('Replicas')] = 1
    """How many servers there are."""
    backup: Backup | None = None


@dataclasses.dataclass
class DatabaseStatus:
    phase: Annotated[str | None, kopf.Column('Phase')] = None
    ready_replicas: int | None = None


@kopf.crd('example.com/v1', plural='databases', short_names=['db'], selectable=['spec.engine'])
class Database:
    """A database with its servers."""

    metadata: kopf.Meta
    spec: DatabaseSpec
    status: DatabaseStatus | None = None


@kopf.on.create(Database)
@kopf.on.update(Database, field='spec')
async def deploy(obj: Database, spec: DatabaseSpec, patch: kopf.Patch, **_: Any) -> None:
    print(f'{obj.metadata.name}: {spec.replicas} servers of {spec.engine}')
    if spec.backup is not None:
        print(f'{obj.metadata.name}: copies are kept for {spec.backup.keep_days} days')
    patch.status = DatabaseStatus(phase='Ready', ready_replicas=spec.replicas)


@kopf.on.update(Database, field='spec.replicas')
def scale(old: int, new: int, **_: Any) -> None:
    print(f'scaled from {old} to {new}')
