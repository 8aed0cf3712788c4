"""
Dry runs, and how strictly the fields of objects are checked.
"""

import re

from sandbox_http import GROUP

THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}


async def test_dry_runs_change_nothing(api, things, configmaps):
    created = await api.post(configmaps, {'metadata': {'name': 'dry'}}, dryRun='All')
    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})
    patched = await api.merge(f'{things}/a', {'spec': {'size': 2}}, dryRun='All')
    deleted = await api.delete(f'{things}/a', dryRun='All')
    deleted_by_body = await api.delete(f'{things}/a', {'dryRun': ['All']})

    assert (created.code, patched.code, deleted.code, deleted_by_body.code) == (201, 200, 200, 200)
    assert created.body['metadata']['uid'] and 'resourceVersion' not in created.body['metadata']
    assert patched.body['spec']['size'] == 2 and patched.body['metadata']['generation'] == 2
    assert patched.body['metadata']['resourceVersion'] == made['metadata']['resourceVersion']
    assert deleted.body['status'] == 'Success'
    assert (await api.get(f'{configmaps}/dry')).code == 404
    assert (await api.get(f'{things}/a')).body == made


async def test_dry_runs_check_everything(api, things):
    reply = await api.post(
        things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': -1}}, dryRun='All'
    )

    assert reply.code == 422
    assert reply.body['message'] == (
        f'Thing.{GROUP} "a" is invalid: spec.size: Invalid value: -1: spec.size in body should be greater than or '
        f'equal to 0'
    )


async def test_unknown_dry_run_is_refused(api, configmaps):
    reply = await api.post(configmaps, {'metadata': {'name': 'a'}}, dryRun='Some')

    assert reply.code == 422
    assert reply.body['message'] == (
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All"'
    )


UNKNOWN = {'metadata': {'name': 'a'}, 'spec': {'size': 1, 'wrong': 1}, 'wrong': 2}


async def test_unknown_fields_are_warned_of_by_default(api, things):
    reply = await api.post(things, {**THING, **UNKNOWN})

    assert reply.code == 201
    assert reply.body['spec'] == {'size': 1, 'color': 'grey'} and 'wrong' not in reply.body
    assert reply.warnings == (
        '299 - "unknown field \\"spec.wrong\\""',
        '299 - "unknown field \\"wrong\\""',
    )


async def test_unknown_fields_are_ignored_on_request(api, things):
    reply = await api.post(things, {**THING, **UNKNOWN}, fieldValidation='Ignore')

    assert reply.code == 201
    assert reply.warnings == ()


async def test_unknown_fields_are_refused_on_request(api, things):
    made = await api.make(things, {**THING, 'metadata': {'name': 'b'}})
    wrong = {
        **THING,
        **UNKNOWN,
        'metadata': {'name': 'b', 'resourceVersion': made['metadata']['resourceVersion']},
    }

    created = await api.post(things, {**THING, **UNKNOWN}, fieldValidation='Strict')
    replaced = await api.put(f'{things}/b', wrong, fieldValidation='Strict')

    assert created.code == replaced.code == 400
    assert (
        created.body['message']
        == replaced.body['message']
        == (
            'Thing in version "v1" cannot be handled as a Thing: strict decoding error: unknown field "spec.wrong", '
            'unknown field "wrong"'
        )
    )


async def test_unknown_fields_of_patches_are_refused_on_request(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    reply = await api.merge(
        f'{things}/a', {'spec': {'wrong': 1}, 'wrong': 2}, fieldValidation='Strict'
    )

    assert reply.code == 422
    assert re.fullmatch(
        re.escape(
            ' "" is invalid: patch: Invalid value: "{\\"apiVersion\\":\\"api.tests.kopf.dev/v1\\",'
        )
        + '.*'
        + re.escape(
            '\\"wrong\\":2}": strict decoding error: unknown field "spec.wrong", unknown '
            'field "wrong"'
        ),
        reply.body['message'],
    )
    assert reply.body['details']['causes'][0]['field'] == 'patch'


async def test_unknown_fields_are_never_applied(api, things):
    reply = await api.apply(
        f'{things}/a',
        {**THING, 'metadata': {'name': 'a'}, 'spec': {'wrong': 1}, 'wrong': 2},
        fieldManager='one',
        fieldValidation='Ignore',
    )

    assert reply.code == 500
    assert reply.body['message'] == (
        f'failed to create typed patch object (/a; {GROUP}/v1, Kind=Thing): errors:\n'
        f'  .spec.wrong: field not declared in schema\n  .wrong: field not declared in schema'
    )


async def test_applied_object_needs_its_name(api, things):
    reply = await api.apply(f'{things}/a', THING, fieldManager='one')

    assert reply.code == 400
    assert (
        reply.body['message']
        == 'the name of the object (a based on URL) was undeterminable: name must be provided'
    )


async def test_unknown_fields_of_built_in_objects_are_refused_on_request(api, configmaps):
    reply = await api.post(
        configmaps,
        {'metadata': {'name': 'a', 'wrong': 1}, 'date': {'a': 'b'}},
        fieldValidation='Strict',
    )

    assert reply.code == 400
    assert reply.body['message'] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'unknown field "metadata.wrong", unknown field "date"'
    )


async def test_repeated_fields_are_refused_or_warned_of(api, configmaps):
    body = b'{"metadata":{"name":"a"},"data":{"k":"1","k":"2"},"data":{"k":"3"}}'

    strict = await api.post(configmaps, body, fieldValidation='Strict')
    warned = await api.post(configmaps, body)

    assert strict.code == 400
    assert strict.body['message'] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        'duplicate field "data.k", duplicate field "data"'
    )
    assert warned.code == 201
    assert warned.warnings == (
        '299 - "duplicate field \\"data.k\\""',
        '299 - "duplicate field \\"data\\""',
    )


async def test_unknown_mode_of_field_validation_is_refused(api, configmaps):
    reply = await api.post(configmaps, {'metadata': {'name': 'a'}}, fieldValidation='Some')

    assert reply.code == 422
    assert reply.body['message'] == (
        'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Some": '
        'supported values: "", "Ignore", "Strict", "Warn"'
    )
