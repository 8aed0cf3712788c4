"""
Comparison: where the answers of the sandbox are not those of the real server.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fidelity_masks

ABSENT = '<absent>'


@dataclasses.dataclass(frozen=True)
class Difference:
    """One field of one answer that is not the same on both sides."""

    label: str
    path: str
    sandbox: Any
    real: Any

    def __str__(self) -> str:
        return f'{self.label}\n    {self.path}\n      sandbox: {self.sandbox!r}\n      real:    {self.real!r}'


@dataclasses.dataclass(frozen=True)
class Allowance:
    """
    A difference that stays on purpose: patterns of the request (a part of it) and of the field (in
    full).
    """

    transcript: str
    label: str
    path: str
    reason: str

    def fits(self, difference: Difference) -> bool:
        return (
            re.search(self.label, difference.label) is not None
            and re.fullmatch(self.path, difference.path) is not None
        )


def compare(
    sandbox: Sequence[fidelity_masks.Masked], real: Sequence[fidelity_masks.Masked]
) -> list[Difference]:
    """
    Compare the answers to the same requests, and the events of the same numbers, each field by
    field.
    """
    ours, theirs = ({answer.label: answer.content for answer in side} for side in (sandbox, real))
    absent = {'code': ABSENT, 'body': None}
    return [
        Difference(label, *found)
        for label in dict.fromkeys([*theirs, *ours])
        for found in compare_answers(ours.get(label, absent), theirs.get(label, absent))
    ]


def compare_answers(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Compare two answers; with different codes, their other fields are not comparable."""
    if ours['code'] == theirs['code']:
        yield from compare_values(ours, theirs)
    else:
        yield '.code', *(f'{side["code"]} {_get_message(side["body"])}' for side in (ours, theirs))


def _get_message(body: Any) -> str:
    return str(body['message'] if isinstance(body, dict) and 'message' in body else body)[:500]


def compare_values(ours: Any, theirs: Any, path: str = '') -> Iterator[tuple[str, Any, Any]]:
    """Find the different values at the deepest places: the path, and the value on each side."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            yield from compare_values(
                ours.get(key, ABSENT), theirs.get(key, ABSENT), f'{path}.{key}'
            )
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index, (one, another) in enumerate(
            itertools.zip_longest(ours, theirs, fillvalue=ABSENT)
        ):
            yield from compare_values(one, another, f'{path}[{index}]')
    elif ours != theirs or type(ours) is not type(theirs):
        yield path, ours, theirs
