"""
Servers of the matrix: what the cluster does with the patches of handlers.

All cells have the same resource, with a structural schema of the spec, the status, the results.
What happens to a patch depends on the values in it, on a mutating webhook (which is called for
real), on the faults of the sandbox, and on what others do while the handler runs.
"""

import base64
import dataclasses
import enum
import json
from collections.abc import Callable, Mapping
from typing import Any

from clusters import GROUP, PLURAL, VERSION, build_crd

WEBHOOK = 'mutatingwebhookconfigurations'
IDS = ('fn', 'fn/child', 'fn/spec', 'watch')  # of the handlers that return results

ITEM = {
    'type': 'object',
    'properties': {'port': {'type': 'integer'}, 'protocol': {'type': 'string', 'default': 'TCP'}},
}
FIELDS = {
    'x': {'type': 'integer'},
    'y': {'type': 'string'},  # as written
    'ports': {'type': 'array', 'items': ITEM},  # defaulted inside
    'cpu': {'type': 'string'},  # normalised by the webhook
    'size': {'type': 'integer', 'minimum': 0},  # refused if negative or of a wrong type
    'touched': {'type': 'boolean'},  # by others
}
SECTION = {'type': 'object', 'properties': FIELDS}
ANYTHING = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
STATUS = {
    'type': 'object',
    'properties': {**FIELDS, 'kopf': ANYTHING, **dict.fromkeys(IDS, SECTION)},
}


class Meddling(enum.Enum):
    """What others do to the object while the handler runs, once."""

    NOTHING = enum.auto()
    TOUCH = enum.auto()  # change the status: not the essence, but the version
    EDIT = enum.auto()  # change the essence
    DELETE = enum.auto()  # delete it, and let it go
    RECREATE = enum.auto()  # the same, and make another object of this name


@dataclasses.dataclass(frozen=True)
class Server:
    """One behaviour of the cluster. The values can depend on the uid of the object."""

    build_values: Callable[[str], Mapping[str, Any]]
    build_stored: Callable[[str], Mapping[str, Any]]
    labels: Mapping[str, Any] | None = None  # the values for labels, if they must be others
    annotations: Mapping[str, Any] | None = None
    # Made by the webhook in all fields of these names.
    replacements: Mapping[str, str] | None = None
    meddling: Meddling = Meddling.NOTHING
    conflicts: int = 0  # how many requests are refused with 409 before the first one is accepted
    is_refused: bool = False  # with 422
    only_schematic: bool = False  # is there nothing like that for labels and annotations?

    def get_values(self, place: str, uid: str) -> Mapping[str, Any]:
        """Return what the handler writes."""
        special = {'labels': self.labels, 'annotations': self.annotations}.get(place)
        return self.build_values(uid) if special is None else special


def _as_uid(uid: str) -> Mapping[str, Any]:
    return {'y': uid}


def _just(**values: Any) -> Callable[[str], Mapping[str, Any]]:
    return lambda uid: values


_PLAIN = {'build_values': _as_uid, 'build_stored': _as_uid}

SERVERS: Mapping[str, Server] = {
    'as-sent': Server(_as_uid, _as_uid),
    'defaulted': Server(
        _just(ports=[{'port': 80}]),
        _just(ports=[{'port': 80, 'protocol': 'TCP'}]),
        only_schematic=True,
    ),
    'pruned': Server(_just(unknown='value'), _just(), only_schematic=True),
    'pruned-inside': Server(
        _just(ports=[{'port': 80, 'protocol': 'UDP', 'unknown': 1}]),
        _just(ports=[{'port': 80, 'protocol': 'UDP'}]),
        only_schematic=True,
    ),
    'normalised': Server(_just(cpu='1000m'), _just(cpu='1'), replacements={'cpu': '1'}),
    'mutated': Server(_just(y='wanted'), _just(y='enforced'), replacements={'y': 'enforced'}),
    'refused-422': Server(
        _just(size=-1),
        _just(),
        is_refused=True,
        labels={'size': 'not a label!'},
        annotations={'not a key!': 'x'},
    ),
    'refused-type': Server(_just(size='big'), _just(), is_refused=True, only_schematic=True),
    'refused-409': Server(_as_uid, _as_uid, conflicts=2),
    'touched': Server(_as_uid, _as_uid, meddling=Meddling.TOUCH),
    'edited': Server(_as_uid, _as_uid, meddling=Meddling.EDIT),
    'gone': Server(_as_uid, _just(), meddling=Meddling.DELETE),
    're-created': Server(_as_uid, _as_uid, meddling=Meddling.RECREATE),
}


def build_definition(*, has_status: bool) -> dict[str, Any]:
    """Build the custom resource of all cells."""
    crd = build_crd(has_status=has_status)
    schema = crd['spec']['versions'][0]['schema']['openAPIV3Schema']
    schema['properties'] = {'spec': SECTION, 'status': STATUS}
    return crd


async def prepare(sandbox: Any, server: Server, *, has_status: bool) -> None:
    """Define the resource and the webhook of this server."""
    await sandbox.apply(build_definition(has_status=has_status))
    if server.replacements:
        await _register_webhook(sandbox, server.replacements)


async def _register_webhook(sandbox: Any, replacements: Mapping[str, str]) -> None:
    async def review(path: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        request = asked['request']
        operations = build_operations(request['object'], replacements)
        raw = base64.b64encode(json.dumps(operations).encode()).decode()
        mutation = {'patchType': 'JSONPatch', 'patch': raw} if operations else {}
        return {
            'apiVersion': asked['apiVersion'],
            'kind': asked['kind'],
            'response': {'uid': request['uid'], 'allowed': True, **mutation},
        }

    rule = {
        'operations': ['CREATE', 'UPDATE'],
        'apiGroups': [GROUP],
        'apiVersions': [VERSION],
        'resources': [PLURAL, f'{PLURAL}/status'],
    }
    client = {'service': {'namespace': 'default', 'name': 'mutator', 'path': '/'}}
    webhook = {
        'name': 'mutator.kopf.dev',
        'rules': [rule],
        'clientConfig': client,
        'admissionReviewVersions': ['v1'],
        'sideEffects': 'None',
    }
    await sandbox.add_service('default', 'mutator', review)
    await sandbox.create(
        {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'MutatingWebhookConfiguration',
            'metadata': {'name': 'mutator'},
            'webhooks': [webhook],
        }
    )


def build_operations(
    body: Mapping[str, Any], replacements: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Build the JSON patch that enforces these values in every place for patches of handlers."""
    metadata = body['metadata']
    status = body.get('status') or {}
    places = {
        '/spec': body.get('spec'),
        '/metadata/labels': metadata.get('labels'),
        '/metadata/annotations': metadata.get('annotations'),
        '/status': status,
    }
    results = {f'/status/{id.replace("/", "~1")}': status.get(id) for id in IDS}

    return [
        {'op': 'replace', 'path': f'{path}/{key}', 'value': value}
        for path, section in {**places, **results}.items()
        if section
        for key, value in replacements.items()
        if section.get(key, value) != value
    ]
