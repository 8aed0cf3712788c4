"""
Patches of the matrix: the ways in which a handler changes its object, one per place of the object.

The values come from the server of the cell, so one patch serves all servers.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, Any]
Write = Callable[[Any, Values], Any]


@dataclasses.dataclass(frozen=True)
class Patch:
    """One way to change an object from a handler."""

    place: str  # where the values get: spec, labels, annotations, status, or result
    write: Write  # puts the values into `patch`, and returns the result of the handler
    is_essential: bool = False  # does it change the essence of the object, if anything?
    is_schematic: bool = False  # does the schema of the resource apply to the values?
    # Is it made by functions, i.e. by a JSON patch with a guard of the version?
    is_function: bool = False

    @property
    def is_status(self) -> bool:
        return self.place in ('status', 'result')


def _write_spec(patch: Any, values: Values) -> None:
    patch.spec.update(values)


def _write_labels(patch: Any, values: Values) -> None:
    patch.metadata.labels.update(values)


def _write_annotations(patch: Any, values: Values) -> None:
    patch.metadata.annotations.update(values)


def _write_status(patch: Any, values: Values) -> None:
    patch.status.update(values)


def _write_by_function(patch: Any, values: Values) -> None:
    patch.fns.append(lambda body: body['spec'].update(values))


def _write_status_by_function(patch: Any, values: Values) -> None:
    patch.fns.append(lambda body: body.setdefault('status', {}).update(values))


def _return_result(patch: Any, values: Values) -> Values:
    return dict(values)


PATCHES: Mapping[str, Patch] = {
    'spec': Patch('spec', _write_spec, is_essential=True, is_schematic=True),
    'labels': Patch('labels', _write_labels, is_essential=True),
    'annotations': Patch('annotations', _write_annotations, is_essential=True),
    'status': Patch('status', _write_status, is_schematic=True),
    'fns': Patch(
        'spec', _write_by_function, is_essential=True, is_schematic=True, is_function=True
    ),
    'fns-status': Patch('status', _write_status_by_function, is_schematic=True, is_function=True),
    'result': Patch('result', _return_result, is_schematic=True),
}


def read_place(body: Mapping[str, Any], place: str, handler_id: str) -> Values:
    """Read what is in the place of the object that the patch was for."""
    if place in ('labels', 'annotations'):
        found = body['metadata'].get(place)
    elif place == 'result':
        found = (body.get('status') or {}).get(handler_id)
    else:
        found = body.get(place)

    return found or {}
