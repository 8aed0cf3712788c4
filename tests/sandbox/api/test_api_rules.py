"""
The validation rules of custom resources: ``x-kubernetes-validations``, evaluated on every write.
"""

import pytest

import kopf.testing
from kopf._sandbox.cel import availability

SPEC = {
    'type': 'object',
    'properties': {
        'min': {'type': 'integer'},
        'max': {'type': 'integer'},
        'fixed': {
            'type': 'string',
            'x-kubernetes-validations': [{'rule': 'self == oldSelf', 'message': 'immutable'}],
        },
    },
    'x-kubernetes-validations': [
        {
            'rule': '!has(self.max) || self.min <= self.max',
            'messageExpression': '"%d is over %d".format([self.min, self.max])',
            'fieldPath': '.min',
        }
    ],
}


def build_crd(spec=SPEC):
    schema = {'openAPIV3Schema': {'type': 'object', 'properties': {'spec': spec}}}
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': 'ranges.kopf.dev'},
        'spec': {
            'group': 'kopf.dev',
            'scope': 'Namespaced',
            'names': {'kind': 'Range', 'plural': 'ranges', 'singular': 'range'},
            'versions': [{'name': 'v1', 'served': True, 'storage': True, 'schema': schema}],
        },
    }


def build_range(**spec):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'Range',
        'metadata': {'name': 'one'},
        'spec': spec,
    }


def test_objects_against_the_rules_are_refused(kopf_sandbox):
    kopf_sandbox.apply(build_crd())

    with pytest.raises(kopf.testing.ApiError) as caught:
        kopf_sandbox.create(build_range(min=5, max=3))

    assert caught.value.code == 422
    assert caught.value.message == (
        'Range.kopf.dev "one" is invalid: spec.min: Invalid value: 5 is over 3'
    )


def test_transitions_are_checked_only_on_changes(kopf_sandbox):
    kopf_sandbox.apply(build_crd())
    kopf_sandbox.create(build_range(min=1, fixed='x'))

    kopf_sandbox.patch('ranges', 'one', {'spec': {'max': 3}})
    with pytest.raises(kopf.testing.ApiError, match='Invalid value: "y": immutable'):
        kopf_sandbox.patch('ranges', 'one', {'spec': {'fixed': 'y'}})

    assert kopf_sandbox.get('ranges', 'one')['spec'] == {'min': 1, 'max': 3, 'fixed': 'x'}


def test_stored_values_may_stay_when_rules_come(kopf_sandbox):
    plain = {'type': 'object', 'properties': {'min': {'type': 'integer'}}}
    rule = {'rule': 'self > 5'}
    kopf_sandbox.apply(build_crd(plain))
    kopf_sandbox.create(build_range(min=1))
    strict = {'type': 'integer', 'x-kubernetes-validations': [rule]}
    kopf_sandbox.apply(build_crd({**plain, 'properties': {'min': strict}}))

    kopf_sandbox.patch('ranges', 'one', {'metadata': {'labels': {'a': 'b'}}})
    with pytest.raises(kopf.testing.ApiError, match='failed rule: self > 5'):
        kopf_sandbox.patch('ranges', 'one', {'spec': {'min': 2}})


def test_definitions_with_wrong_rules_are_refused(kopf_sandbox):
    wrong = {**SPEC, 'x-kubernetes-validations': [{'rule': 'self.absent > 1'}]}

    with pytest.raises(kopf.testing.ApiError, match="undefined field 'absent'") as caught:
        kopf_sandbox.apply(build_crd(wrong))

    assert caught.value.code == 422


def test_rules_are_accepted_without_the_library(kopf_sandbox, monkeypatch):
    monkeypatch.setattr(availability, 'LIBRARY', 'absent_library_of_cel')

    kopf_sandbox.apply(build_crd())
    kopf_sandbox.create(build_range(min=5, max=3))

    assert kopf_sandbox.get('ranges', 'one')['spec'] == {'min': 5, 'max': 3}
