"""
Admission handlers with typed arguments.
"""

import dataclasses

import pytest
from clusters import build_object
from webhook_servers import open_client, wait_for_records

import kopf


@dataclasses.dataclass
class Spec:
    max_size: int


@dataclasses.dataclass
class Whole:
    spec: Spec


@pytest.mark.guarantee('TYP-009', 'TYP-017')
async def test_requests_are_reviewed_with_types_and_refused_if_they_do_not_fit(
    cluster, sandbox, hall, registry, run_operator
):
    @kopf.on.validate('kopfexamples', registry=registry)
    def validate_fn(spec: Spec, obj: Whole, old: Whole | None, new: Whole, **_):
        assert old is None
        assert new == obj == Whole(spec)
        if spec.max_size > 5:
            raise kopf.AdmissionError('It is too large.', code=400)

    await run_operator()
    await wait_for_records(sandbox, 1, 'validatingwebhookconfigurations')
    async with open_client(sandbox) as client:
        fitting = await client.create(build_object('small', spec={'maxSize': 5}))
        denied = await client.create(build_object('large', spec={'maxSize': 6}))
        unfit = await client.create(build_object('wrong', spec={'maxSize': 'x'}))

    assert (fitting.code, denied.code, unfit.code) == (201, 400, 422)
    assert 'spec.maxSize: Expected `int`, got `str`' in unfit.body['message']


@pytest.mark.guarantee('TYP-012', 'TYP-017')
async def test_objects_that_did_not_fit_before_can_be_edited_and_deleted(
    cluster, sandbox, hall, registry, run_operator
):
    @kopf.on.validate('kopfexamples', registry=registry)
    @kopf.on.validate('kopfexamples', registry=registry, operations=['DELETE'], id='deletion')
    def validate_fn(spec: Spec, **_):
        raise kopf.AdmissionError('Nothing is good enough.')

    await cluster.create(spec={'maxSize': 'x'})
    await run_operator()
    await wait_for_records(sandbox, 2, 'validatingwebhookconfigurations')
    async with open_client(sandbox) as client:
        edited = await client.patch({'metadata': {'labels': {'a': 'b'}}})
        corrected = await client.patch({'spec': {'maxSize': 1}})
        deleted = await client.delete()

    assert (edited.code, corrected.code, deleted.code) == (200, 500, 200)
    assert any('spec.maxSize: Expected `int`' in warning for warning in edited.warnings)
