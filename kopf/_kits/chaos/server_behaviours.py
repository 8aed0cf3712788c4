"""
Server behaviours: how the API server modifies the written objects, as a mutating webhook does.

A behaviour is a function that modifies the body of an object in place, or refuses it with
`AdmissionError`. It depends only on the body, and is idempotent: so every object reaches a state
that the server agrees with, as on real servers.
"""

import base64
import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kopf._core.actions import failures

Behaviour = Callable[[dict[str, Any]], object]

NAME = 'chaos.kopf.dev'
SERVICE = {'namespace': 'default', 'name': 'chaos-of-kopf', 'path': '/'}
EXEMPT = frozenset(
    {'CustomResourceDefinition', 'Event', 'Eviction', 'Lease', 'Namespace', 'TokenReview'}
)
"""The kinds that are never modified: the cluster itself depends on most of them."""

REFUSAL = 422

ROUNDS = 5
"""The limit of rounds of the behaviours: each must see what the others change."""


def add_label(body: dict[str, Any]) -> None:
    """Label all objects, as company policies do."""
    _label(body)['chaos.kopf.dev/labelled'] = 'yes'


def stamp_spec(body: dict[str, Any]) -> None:
    """Put the checksum of the spec into a label: it changes in the same write as the spec."""
    text = json.dumps(body.get('spec'), sort_keys=True)
    _label(body)['chaos.kopf.dev/checksum'] = hashlib.sha256(text.encode()).hexdigest()[:16]


def annotate(body: dict[str, Any]) -> None:
    """Annotate all objects, as sidecar injectors do."""
    body['metadata'].setdefault('annotations', {})['chaos.kopf.dev/annotated'] = 'yes'


def normalise_quantities(body: dict[str, Any]) -> None:
    """Convert quantities to their canonical form: not 1000m, but 1."""
    if 'spec' in body:
        body['spec'] = _normalise(body['spec'])


BEHAVIOURS: tuple[Behaviour, ...] = (add_label, stamp_spec, annotate, normalise_quantities)
"""The behaviours that any server can have for any objects."""


class UnsteadyServerError(Exception):
    """The behaviours change an object endlessly, so it cannot come to rest."""


class BehavingServer:
    """The chosen behaviours of a server, in their order."""

    def __init__(self, behaviours: Iterable[Behaviour], chosen: Sequence[str]) -> None:
        known = name_behaviours(behaviours)
        self._behaviours = {name: known[name] for name in chosen}

    def rewrite(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body as the server stores it. Raises `AdmissionError` if it is refused."""
        before = dict(body)
        after = self._apply(body)

        for _ in range(ROUNDS):
            if before == after:
                return after
            before = after
            after = self._apply(before)

        names = ', '.join(self._behaviours)
        raise UnsteadyServerError(
            f'The server does not agree with itself: {names} always change the object again.'
        )

    async def review(self, path: str, review: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the review of a write: the webhook itself."""
        request = review['request']
        body = request.get('object')
        answer: dict[str, Any] = {'uid': request['uid'], 'allowed': True}

        try:
            operations = [] if not is_subject(body) else build_operations(body, self.rewrite(body))
        except failures.AdmissionError as error:
            status = {'code': error.code or REFUSAL, 'message': str(error)}
            answer = {'uid': request['uid'], 'allowed': False, 'status': status}
        else:
            if operations:
                encoded = base64.b64encode(json.dumps(operations).encode()).decode()
                answer |= {'patchType': 'JSONPatch', 'patch': encoded}

        return {'apiVersion': review['apiVersion'], 'kind': review['kind'], 'response': answer}

    def _apply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        changed = copy.deepcopy(dict(body))
        for behaviour in self._behaviours.values():
            behaviour(changed)
        return changed


def name_behaviours(behaviours: Iterable[Behaviour]) -> dict[str, Behaviour]:
    """
    Return the behaviours by name: the given ones, and those of any server.

    Raises `ValueError` for duplicate names.
    """
    named: dict[str, Behaviour] = {}
    for behaviour in (*behaviours, *BEHAVIOURS):
        name = getattr(behaviour, '__name__', repr(behaviour))
        if name in named:
            raise ValueError(f'The server does two different things named {name!r}.')
        named[name] = behaviour

    return named


def build_configuration() -> dict[str, Any]:
    """Build the configuration of the webhook for all writes of all objects."""
    return {
        'apiVersion': 'admissionregistration.k8s.io/v1',
        'kind': 'MutatingWebhookConfiguration',
        'metadata': {'name': NAME},
        'webhooks': [
            {
                'name': NAME,
                'clientConfig': {'service': SERVICE},
                'sideEffects': 'None',
                'admissionReviewVersions': ['v1'],
                'reinvocationPolicy': 'IfNeeded',
                'rules': [
                    {
                        'apiGroups': ['*'],
                        'apiVersions': ['*'],
                        'resources': ['*/*'],
                        'operations': ['CREATE', 'UPDATE'],
                    }
                ],
            }
        ],
    }


def is_subject(body: Mapping[str, Any] | None) -> bool:
    """Return whether the server may change objects of this kind."""
    return bool(body) and body is not None and body.get('kind') not in EXEMPT


def build_operations(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build a JSON patch from one body to another, section by section."""
    return [
        *_compare('', old, new, exempt=('metadata',)),
        *_compare('/metadata', old['metadata'], new['metadata']),
    ]


def _compare(
    prefix: str, old: Mapping[str, Any], new: Mapping[str, Any], *, exempt: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    for key in sorted({*old, *new} - {*exempt}):
        if key not in new:
            yield {'op': 'remove', 'path': f'{prefix}/{key}'}
        elif old.get(key) != new[key]:
            yield {'op': 'add', 'path': f'{prefix}/{key}', 'value': new[key]}


def _label(body: dict[str, Any]) -> dict[str, Any]:
    labels: dict[str, Any] = body['metadata'].setdefault('labels', {})
    return labels


def _normalise(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normalise(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normalise(item) for item in value]
    if isinstance(value, str) and re.fullmatch(r'[1-9]\d*000m', value):
        return value.removesuffix('000m')
    return value
