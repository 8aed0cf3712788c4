"""
Scenarios: the changes of objects, step by step; after each step, the operators get time to react.

A scenario with several starts is also a handover: one implementation continues the work of another.
"""

import dataclasses
import signal
from collections.abc import Callable, Iterator

import stages

Steps = Iterator[str]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A sequence of steps, with its operator, and the number of starts."""

    play: Callable[[stages.Stage], Steps]
    operator: str
    starts: int = 1
    has_status: bool = False  # whether the status is a subresource
    # Whether the number of writes does not depend on the duration of the steps.
    counts_writes: bool = True

    @property
    def name(self) -> str:
        return self.play.__name__ + ('_with_subresource' if self.has_status else '')


def lifecycle(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1, 'gone': 1, 'items': [1, 2]}, labels={'a': 'b'})
    yield 'create'
    stage.patch('obj', {'spec': {'x': 2, 'gone': None, 'items': [1]}})
    yield 'change the spec'
    stage.patch('obj', {'metadata': {'labels': {'a': None, 'c': 'd'}, 'annotations': {'e': 'f'}}})
    yield 'change the metadata'
    stage.patch('obj', {'status': {'s': 1}})
    yield 'change the status'
    stage.patch(
        'obj',
        {
            'metadata': {
                'finalizers': ['kopf.zalando.org/KopfFinalizerMarker', 'example.com/foreign']
            }
        },
    )
    yield 'hold'
    stage.delete('obj')
    yield 'delete'
    stage.patch('obj', {'spec': {'x': 3}})
    yield 'change what is being deleted'
    stage.patch('obj', {'metadata': {'finalizers': []}})
    yield 'unhold'
    stage.create('obj', {'x': 1})
    yield 'create anew'
    stage.delete('obj')
    yield 'delete again'


def optional_deletion(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('free', {'x': 1})
    stage.create('held', {'x': 1}, labels={'held': 'yes'})
    stage.create('released', {'x': 1}, labels={'held': 'yes'})
    yield 'create'
    stage.patch('released', {'metadata': {'labels': {'held': 'no'}}})
    yield 'release'
    for name in ('free', 'held', 'released'):
        stage.delete(name)
    yield 'delete'


def fields(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('with', {'f': 1, 'deep': {'er': {'est': 1}}}, labels={'l': '1'})
    stage.create('without', {'x': 1})
    yield 'create'
    stage.patch(
        'with', {'spec': {'f': 2, 'deep': {'er': {'est': 2}}}, 'metadata': {'labels': {'l': '2'}}}
    )
    stage.patch('without', {'spec': {'f': 1, 'deep': {}}})
    yield 'change'
    stage.patch('with', {'spec': {'f': None, 'deep': None}, 'metadata': {'labels': {'l': None}}})
    stage.patch('without', {'spec': {'x': 2}, 'status': {'s': 1}})
    yield 'remove'
    stage.patch('without', {'status': {'s': {'t': 2}}})
    yield 'change the status'
    stage.delete('with')
    stage.delete('without')
    yield 'delete'


def filters(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('one', {'x': 1})
    stage.create('two', {'x': 2, 'v': 4}, labels={'l': 'yes'})
    yield 'create'
    stage.patch('one', {'spec': {'v': 5}, 'metadata': {'labels': {'l': 'maybe'}}})
    stage.patch('two', {'spec': {'v': 5}})
    yield 'set'
    stage.patch('one', {'spec': {'v': 6}, 'metadata': {'annotations': {'a': 'b'}}})
    stage.patch('two', {'spec': {'x': 3}, 'metadata': {'labels': {'l': 'no'}}})
    yield 'change'
    stage.patch('one', {'spec': {'v': None}, 'metadata': {'annotations': {'a': None}}})
    stage.patch('two', {'spec': {'v': None}, 'metadata': {'labels': {'l': None}}})
    yield 'remove'


def resuming(stage: stages.Stage) -> Steps:
    stage.create('before', {'x': 1})
    stage.start()
    yield 'start'
    for name in ('idle', 'changed', 'deleted'):
        stage.create(name, {'x': 1})
    yield 'create'
    stage.stop()
    stage.patch('changed', {'spec': {'x': 2}})
    stage.delete('deleted')
    stage.create('created', {'x': 1})
    yield 'stop'
    stage.start()
    yield 'start again'
    stage.open('deleted')
    yield 'open'
    stage.patch('idle', {'spec': {'x': 3}})
    yield 'change'


def subhandling(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'items': ['one', 'two', 'failing', 'fatal']})
    yield 'create'
    stage.patch('obj', {'spec': {'items': ['one', 'three']}})
    yield 'change'


def subhandling_of_fields(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'f': {'g': 1, 'h': 1}, 'x': 1})
    stage.create('without', {'x': 1})
    yield 'create'
    stage.patch('obj', {'spec': {'f': {'g': 2}, 'x': 2}})
    yield 'change'
    stage.patch('obj', {'spec': {'x': 3}, 'status': {'s': 1}})
    yield 'change another field'
    stage.patch('obj', {'spec': {'f': {'g': None}}})
    yield 'remove'
    stage.delete('obj')
    yield 'delete'


def ignored_fields(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'ignored': 1, 'x': 1}, labels={'l': 'yes'})
    stage.patch('obj', {'status': {'s': 1}})
    yield 'create'
    stage.patch('obj', {'spec': {'ignored': 2}})
    yield 'change what is ignored'
    stage.patch('obj', {'spec': {'x': 2}, 'status': {'s': 2}})
    yield 'change'
    stage.stop()
    stage.start()
    yield 'restart'
    stage.delete('obj')
    yield 'delete'


def classes(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    yield 'create'
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'


def lambdas(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    yield 'create'


def namesakes(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    yield 'create'
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'


def admission(stage: stages.Stage) -> Steps:
    stage.start()
    old, new = {'f': 1, 'x': 1}, {'f': 2, 'x': 1, 'l': 'yes'}
    for operation, states in {
        'CREATE': (None, new),
        'UPDATE': (old, new),
        'DELETE': (new, None),
    }.items():
        stage.review(None, operation, *states)
        yield f'{operation} for all'
    for kind in ('validate', 'mutate'):
        for id in ('all', 'label', 'when', 'status'):
            stage.review(f'{kind}-{id}', 'UPDATE', old, new)
            stage.review(f'{kind}-{id}', 'UPDATE', old, new, 'status')
            stage.review(f'{kind}-{id}', 'DELETE', new, None)
        yield f'{kind}, one by one'
        for id in ('field/spec.f', 'value/spec.f', 'absent/spec.f'):
            stage.review(f'{kind}-{id}', 'UPDATE', old, new)
            stage.review(f'{kind}-{id}', 'UPDATE', new, old)
            stage.review(f'{kind}-{id}', 'UPDATE', new, {'x': 2})
            stage.review(f'{kind}-{id}', 'DELETE', new, None)
        yield f'{kind} with fields'
    stage.review('deny/spec.denied', 'CREATE', None, {'denied': True})
    yield 'deny'
    stage.review(None, 'CREATE', None, {'denied': True})
    yield 'deny and mutate'
    stage.review('patch/spec.patched', 'CREATE', None, {'patched': True})
    yield 'patch while validating'
    stage.review('unknown', 'CREATE', None, new)
    yield 'unknown handlers'


def admission_operations(stage: stages.Stage) -> Steps:
    stage.start()
    stage.note_webhooks(10)
    yield 'configure'
    states = {
        'CREATE': (None, {'x': 1}),
        'UPDATE': ({'x': 1}, {'x': 2}),
        'DELETE': ({'x': 2}, None),
    }
    asked = {
        'default': states,
        'creation': ['CREATE'],
        'deletion': ['DELETE'],
        'several': ['UPDATE', 'DELETE'],
        'each': states,
    }
    for kind in ('validate', 'mutate'):
        for id, operations in asked.items():
            for operation in operations:
                stage.review(f'{kind}-{id}', operation, *states[operation])
        yield kind


def errors(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    yield 'create'
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'
    stage.delete('obj')
    yield 'delete'


def results(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    yield 'create'
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'
    stage.patch('obj', {'metadata': {'annotations': {'touched': 'yes'}}})
    yield 'touch'


def own_changes(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    yield 'create'
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'


def changes_in_mid_cycle(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1}, labels={'a': 'b'})
    stage.create('reverted', {'x': 1})
    yield 'create'
    stage.open('obj')
    stage.open('reverted')
    yield 'open'
    for name in ('obj', 'reverted'):
        stage.patch(name, {'status': {'open': None}})
        stage.patch(name, {'spec': {'x': 2}})
    yield 'change'
    stage.patch('obj', {'spec': {'x': 3}})
    stage.patch('reverted', {'spec': {'x': 1}})
    yield 'change again'
    stage.open('obj')
    stage.open('reverted')
    yield 'open again'


def handover_when_idle(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create(
        'obj',
        {'x': 1, 'f': 1, 'text': 'žluťoučký "kůň"\n', 'items': [{'a': None}], 'number': 1.5},
        labels={'a': 'b'},
        annotations={'c': 'd'},
    )
    stage.open('obj')
    yield 'create'
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'
    stage.stop()
    stage.start()
    yield 'hand over'
    stage.patch('obj', {'spec': {'f': 2}})
    yield 'change again'
    stage.delete('obj')
    yield 'delete'


def handover_in_creation(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1, 'f': 1})
    stage.create('deleted', {'x': 1, 'f': 1})
    yield 'create'
    stage.stop()
    stage.start()
    yield 'hand over'
    stage.open('obj')
    stage.delete('deleted')
    yield 'open'
    stage.open('deleted')
    yield 'open what is being deleted'
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'


def handover_in_update(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1, 'f': 1})
    stage.open('obj')
    yield 'create'
    stage.patch('obj', {'status': {'open': None}})
    stage.patch('obj', {'spec': {'x': 2, 'f': 2}})
    yield 'change'
    stage.stop(signal.SIGKILL)
    stage.start()
    yield 'hand over'
    stage.open('obj')
    yield 'open'
    stage.patch('obj', {'spec': {'x': 3}})
    yield 'change again'


def handover_in_deletion(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    stage.open('obj')
    yield 'create'
    stage.patch('obj', {'status': {'open': None}})
    stage.delete('obj')
    yield 'delete'
    stage.stop()
    stage.start()
    yield 'hand over'
    stage.open('obj')
    yield 'open'


def handover_with_children(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    yield 'create'
    stage.stop()
    stage.start()
    yield 'hand over'
    stage.open('obj')
    yield 'open'
    stage.patch('obj', {'status': {'open': None}})
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'
    stage.stop()
    stage.start()
    yield 'hand over again'
    stage.open('obj')
    yield 'open again'


def handover_after_a_change_in_mid_cycle(stage: stages.Stage) -> Steps:
    stage.start()
    stage.create('obj', {'x': 1})
    stage.open('obj')
    yield 'create'
    stage.patch('obj', {'status': {'open': None}})
    stage.patch('obj', {'spec': {'x': 2}})
    yield 'change'
    stage.patch('obj', {'spec': {'x': 3}})
    yield 'change again'
    stage.stop()
    stage.start()
    yield 'hand over'
    stage.open('obj')
    yield 'open'
    stage.patch('obj', {'status': {'open': None}})
    stage.patch('obj', {'spec': {'x': 4}})
    yield 'change once more'
    stage.stop()
    stage.start()
    yield 'hand over again'
    stage.open('obj')
    yield 'open again'


SCENARIOS = [
    Scenario(lifecycle, 'lifecycle.py'),
    Scenario(lifecycle, 'lifecycle.py', has_status=True),
    Scenario(optional_deletion, 'optional_deletion.py'),
    Scenario(fields, 'fields.py'),
    Scenario(filters, 'filters.py'),
    Scenario(resuming, 'resuming.py', starts=2, counts_writes=False),
    Scenario(subhandling, 'subhandling.py'),
    Scenario(subhandling_of_fields, 'subhandling_of_fields.py'),
    Scenario(ignored_fields, 'ignored_fields.py', starts=2, counts_writes=False),
    Scenario(classes, 'classes.py', counts_writes=False),
    Scenario(lambdas, 'lambdas.py', counts_writes=False),
    Scenario(namesakes, 'namesakes.py', counts_writes=False),
    Scenario(admission, 'admission.py'),
    Scenario(admission_operations, 'admission_operations.py'),
    Scenario(errors, 'errors.py'),
    Scenario(results, 'results.py'),
    Scenario(results, 'results.py', has_status=True),
    Scenario(own_changes, 'own_changes.py'),
    Scenario(changes_in_mid_cycle, 'gated.py', counts_writes=False),
    Scenario(handover_when_idle, 'gated.py', starts=2, counts_writes=False),
    Scenario(handover_in_creation, 'gated.py', starts=2, counts_writes=False),
    Scenario(handover_in_update, 'gated.py', starts=2, counts_writes=False),
    Scenario(handover_in_deletion, 'gated.py', starts=2, counts_writes=False),
    Scenario(handover_with_children, 'gated_children.py', starts=3, counts_writes=False),
    Scenario(handover_after_a_change_in_mid_cycle, 'gated.py', starts=3, counts_writes=False),
]
