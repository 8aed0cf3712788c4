"""
Expectations: the intended differences from the reference, and their reasons.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Expectation:
    """Some differences in some scenarios; both are regular expressions for the whole texts."""

    scenario: str
    difference: str
    reason: str

    def covers(self, scenario: str, difference: str) -> bool:
        return bool(
            re.fullmatch(self.scenario, scenario)
            and re.fullmatch(self.difference, difference, re.DOTALL)
        )


EXPECTATIONS = [
    Expectation(
        'fields',
        r'create: (object without: .*|writes: 6 instead of 5)',
        'Handlers of fields keep objects in scope also while they have no such fields, so that the state without them '
        'is remembered: FLT-037.',
    ),
    Expectation(
        'fields',
        r'change: (missing|extra) call: \w+ without (create|update) .*',
        'The same: a field that appears in an object handled before is an update, not a creation.',
    ),
    Expectation(
        'filters',
        r'create: missing call: create_without_field two .*',
        'value=ABSENT does not match objects that have the field: FLT-009, FLT-011.',
    ),
    Expectation(
        'filters',
        r'create: (extra call: create_by_callback one .*|writes: 4 instead of 3)',
        'Callbacks of values get None for absent values, not an internal token: FLT-027. One more handler, one more '
        'record of its progress.',
    ),
    Expectation(
        'resuming|handover_in_creation',
        r'[\w ]+: extra call: resume(_deleted)? \w+ create .*',
        'Resuming handlers are mixed into the creation of objects found at the start: HND-040.',
    ),
    Expectation(
        'own_changes',
        r'\w+: missing call: update obj update .*"twice".*',
        'Handlers are not called again because of what they themselves have changed; other handlers are.',
    ),
    Expectation(
        'changes_in_mid_cycle|handover_after_a_change_in_mid_cycle',
        r'(change|open)( again)?: extra call: (quick|lengthy|gated) \w+ update .*',
        'A change in mid-cycle, or its reversal, is told to those who have finished before it: nothing is lost.',
    ),
    Expectation(
        'changes_in_mid_cycle',
        r'change again: object reverted: .*',
        'The same: what was seen by some handlers is the last handled state until its reversal is handled.',
    ),
    Expectation(
        'handover_in_creation',
        r'open: (extra call: quick deleted delete .*|object deleted: .*"reason": "delete".*)',
        'Handlers that have finished with a creation are called for the deletion in mid-cycle, as for any deletion.',
    ),
    Expectation(
        'namesakes',
        r'\w+: (extra call: fn of two obj \w+ .*|object obj: .*)',
        'All functions with one id are called, each with a record and a result of its own: FND-021.',
    ),
    Expectation(
        'lambdas',
        r'create: (extra call: other obj create .*|object obj: .*)',
        'The reference puts the path of a lambda into the key of its progress, which the API refuses: its cycles never '
        'end if there are other handlers.',
    ),
    Expectation(
        'admission',
        r'deny and mutate: \w+ call: answer of None None CREATE .*"allowed": false.*',
        'There are no patches in denials.',
    ),
    Expectation(
        'admission',
        r'patch while validating: \w+ call: answer of patch/spec.patched .*',
        'There are no patches in the answers of validating handlers: the log tells that they are ignored.',
    ),
    Expectation(
        'admission',
        r'unknown handlers: \w+ call: answer of unknown .*"allowed": true.*',
        'The answer for an unknown handler has a warning: FND-025.',
    ),
    Expectation(
        'admission_operations',
        r'configure: \w+ call: webhook mutate-default.auto.kopf.dev .*',
        'Mutating handlers are not even asked about deletions, unless they want it: FND-022.',
    ),
    Expectation(
        'admission_operations',
        r'mutate: extra call: mutate-(several|each) obj DELETE .*',
        'Mutating handlers get deletions if these are listed, also beside other operations: FND-022.',
    ),
    Expectation(
        'handover_in_creation',
        r'open what is being deleted: missing call: field deleted delete .*',
        'Unfinished handlers of fields do not go on for objects being deleted: they are not for deletions.',
    ),
]
