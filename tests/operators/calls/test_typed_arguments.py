"""
Typed arguments: functions get values of their classes, and are not called for objects that do not
fit these classes.
"""

import dataclasses
import logging
import subprocess
import sys
import textwrap
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest
from clusters import FINALIZER, wait_until

import kopf
import kopf.testing
from kopf._core.intents import arguments


@dataclasses.dataclass
class Backup:
    keep_days: Annotated[int, kopf.Schema(ge=1)] = 7


@dataclasses.dataclass
class ExampleSpec:
    replicas: int
    engine_name: str = 'postgres'
    backup: Backup | None = None


@dataclasses.dataclass
class ExampleStatus:
    ready_replicas: int | None = None
    message: str | None = None


@kopf.crd('kopf.dev/v1', kind='KopfExample', plural='kopfexamples')
class Example:
    metadata: kopf.Meta
    spec: ExampleSpec
    status: ExampleStatus | None = None


GOOD = {'replicas': 2, 'engineName': 'mysql', 'backup': {'keepDays': 3}}
BAD = {'replicas': 'many', 'engineName': 'mysql'}


@pytest.fixture(autouse=True)
def logs(caplog):
    caplog.set_level(logging.INFO)
    return caplog


def list_warnings(caplog):
    return [record.message for record in caplog.records if 'does not fit' in record.message]


@pytest.mark.guarantee('TYP-008', 'TYP-009')
async def test_handlers_are_declared_for_classes_and_get_their_values(
    cluster, registry, run_operator, calls
):
    @kopf.on.create(Example, registry=registry)
    async def create_fn(
        spec: ExampleSpec,
        obj: Example,
        body: Example,
        status: ExampleStatus | None,
        meta,
        new: Example,
        old: Example | None,
        **kwargs,
    ):
        calls.append((spec, obj.spec, body.spec, status, old, new.spec))
        assert obj.metadata.name == meta.name == 'obj'
        assert 'obj' not in kwargs

    await cluster.create(spec=GOOD)
    await run_operator()
    await wait_until(lambda: calls)

    expected = ExampleSpec(2, 'mysql', Backup(3))
    assert calls == [(expected, expected, expected, None, None, expected)]


@pytest.mark.guarantee('TYP-009')
async def test_changed_fields_have_the_types_of_the_fields(cluster, registry, run_operator, calls):
    @kopf.on.update(Example, registry=registry, field='spec.backup')
    def update_fn(old: Backup | None, new: Backup, spec, **_):
        calls.append((old, new, type(spec)))

    await cluster.create(spec={'replicas': 1})
    await run_operator()
    await cluster.wait_until_handled()
    await cluster.patch({'spec': {'backup': {'keepDays': 5}}})
    await wait_until(lambda: calls)
    await cluster.patch({'spec': {'backup': {'keepDays': 6}}})
    await wait_until(lambda: len(calls) == 2)

    assert calls == [(None, Backup(5), kopf.Spec), (Backup(5), Backup(6), kopf.Spec)]


@pytest.mark.guarantee('TYP-009')
async def test_structs_dicts_and_models_are_accepted_for_any_resource(
    cluster, registry, run_operator, calls
):
    class Struct(msgspec.Struct):
        engine_name: str

    class Model(pydantic.BaseModel):
        replicas: int

    class Dict(TypedDict):
        replicas: int

    def struct_fn(spec: Struct, **_):
        calls.append(spec)

    def model_fn(spec: Model, **_):
        calls.append(spec)

    def dict_fn(spec: Dict, **_):
        calls.append(type(spec))

    for fn in (struct_fn, model_fn, dict_fn):
        kopf.on.create('kopfexamples', registry=registry)(fn)
    await cluster.create(spec=GOOD)
    await run_operator()
    await wait_until(lambda: len(calls) == 3)

    # Dicts with types are dicts anyway: they are converted only as parts of declared resources.
    assert calls == [Struct('mysql'), Model(replicas=2), kopf.Spec]


@pytest.mark.guarantee('TYP-009')
@pytest.mark.parametrize('annotation', [Any, dict, kopf.Spec, 'Unknown', None, 'kopf.Spec'])
async def test_other_annotations_change_nothing(cluster, registry, run_operator, calls, annotation):
    async def create_fn(spec, **_):
        calls.append((type(spec), dict(spec)))

    create_fn.__annotations__['spec'] = annotation
    kopf.on.create('kopfexamples', registry=registry)(create_fn)
    await cluster.create(spec=GOOD)
    await run_operator()
    await wait_until(lambda: calls)

    assert calls == [(kopf.Spec, GOOD)]


@pytest.mark.guarantee('TYP-009')
@pytest.mark.parametrize('annotation', ['ExampleSpec', 'ExampleSpec | None', ExampleSpec | None])
async def test_annotations_can_be_texts_and_optional(
    cluster, registry, run_operator, calls, annotation
):
    async def create_fn(spec, **_):
        calls.append(spec)

    create_fn.__annotations__['spec'] = annotation
    kopf.on.create('kopfexamples', registry=registry)(create_fn)
    await cluster.create(spec=GOOD)
    await run_operator()
    await wait_until(lambda: calls)

    assert calls == [ExampleSpec(2, 'mysql', Backup(3))]


@pytest.mark.guarantee('TYP-010')
async def test_values_of_classes_are_patched_with_the_names_of_the_api(
    cluster, registry, run_operator
):
    @kopf.on.create(Example, registry=registry)
    async def create_fn(spec: ExampleSpec, patch, **_):
        patch.status = ExampleStatus(ready_replicas=spec.replicas)
        patch.spec = {'backup': kopf.to_patch(Backup(keep_days=9))}

    await cluster.create(spec=GOOD)
    await cluster.patch({'status': {'message': 'old', 'other': 'kept'}})
    await run_operator()
    body = await cluster.wait(lambda body: 'readyReplicas' in (body.get('status') or {}))

    assert body['status'] == {'readyReplicas': 2, 'other': 'kept'}
    assert body['spec'] == {**GOOD, 'backup': {'keepDays': 9}}


@pytest.mark.guarantee('TYP-011')
async def test_objects_that_do_not_fit_are_reported_once_and_handled_without_types(
    cluster, registry, run_operator, calls, logs
):
    @kopf.on.create(Example, registry=registry)
    @kopf.on.create(Example, registry=registry, id='another')
    async def typed_fn(spec: ExampleSpec, **_):
        calls.append(spec)

    @kopf.on.create(Example, registry=registry)
    async def untyped_fn(spec, **_):
        calls.append(dict(spec))

    await cluster.create(spec=BAD)
    await run_operator()
    await cluster.wait_until_handled()
    await wait_until(lambda: list_warnings(logs))

    assert calls == [BAD]
    [warning] = list_warnings(logs)
    assert 'spec.replicas: Expected `int`, got `str`' in warning


@pytest.mark.guarantee('TYP-011')
async def test_one_event_tells_the_path_of_what_does_not_fit(
    cluster, registry, run_operator, sandbox
):
    @kopf.on.create(Example, registry=registry)
    @kopf.on.create(Example, registry=registry, id='another')
    async def typed_fn(spec: ExampleSpec, **_):
        pass

    await cluster.create(spec=BAD)
    operator = await run_operator()
    await cluster.wait_until_handled()
    await operator.stop()

    events = await sandbox.list('events')
    told = [event for event in events if event['reason'] == 'InvalidObject']
    assert [event['type'] for event in told] == ['Warning']
    assert 'spec.replicas: Expected `int`, got `str`' in told[0]['message']
    assert 'HandlerFailed' not in {event['reason'] for event in events}


@pytest.mark.guarantee('TYP-011')
async def test_objects_are_handled_with_types_when_they_are_corrected(
    cluster, registry, run_operator, calls
):
    @kopf.on.create(Example, registry=registry)
    @kopf.on.update(Example, registry=registry)
    async def typed_fn(spec: ExampleSpec, old: Example | None, reason, **_):
        calls.append((str(reason), spec.replicas, old))

    await cluster.create(spec=BAD)
    await run_operator()
    await cluster.wait_until_handled()
    await cluster.patch({'spec': {'replicas': 3}})
    await wait_until(lambda: calls)

    # The past state does not fit, and cannot be given.
    assert calls == [('update', 3, None)]


@pytest.mark.guarantee('TYP-012')
async def test_objects_that_do_not_fit_can_always_be_deleted(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete(Example, registry=registry)
    async def delete_fn(spec: ExampleSpec, obj: Example, **_):
        calls.append((type(spec), type(obj)))

    await run_operator()
    for spec in (BAD, GOOD):
        await cluster.create(spec=spec)
        await cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
        await cluster.delete()
        await cluster.wait(lambda body: body is None)

    assert calls == [(kopf.Spec, kopf.Body), (ExampleSpec, Example)]


@pytest.mark.guarantee('TYP-011')
@pytest.mark.parametrize('kind', ['daemon', 'timer', 'event', 'index'])
async def test_other_handlers_wait_until_the_object_fits(
    cluster, registry, run_operator, calls, logs, kind
):
    options = {'timer': {'interval': 10}}.get(kind, {})

    @getattr(kopf.on, kind)(Example, registry=registry, **options)
    async def typed_fn(spec: ExampleSpec, **_):
        calls.append(spec.replicas)

    @kopf.on.event(Example, registry=registry)
    async def event_fn(spec, **_):
        calls.append(spec['replicas'])

    await cluster.create(spec=BAD)
    await run_operator()
    await wait_until(lambda: list_warnings(logs) and 'many' in calls)
    await cluster.patch({'spec': {'replicas': 3}})

    await wait_until(lambda: calls.count(3) >= 2)


@pytest.mark.guarantee('TYP-009')
async def test_functions_are_called_with_types_in_tests(registry):
    @kopf.on.create(Example, registry=registry)
    async def typed_fn(spec: ExampleSpec, **_):
        pass

    call = kopf.testing.call(typed_fn, registry=registry, spec=GOOD)

    assert await call is None
    with pytest.raises(kopf.PermanentError, match=r'spec\.replicas: Expected `int`'):
        kopf.testing.call(typed_fn, registry=registry, spec=BAD)


@pytest.mark.guarantee('TYP-004')
def test_parts_of_objects_are_not_annotated_with_whole_objects(registry):
    with pytest.raises(TypeError, match=r'add the argument obj: Example'):

        @kopf.on.create(Example, registry=registry)
        def fn(spec: Example, **_):
            pass


@pytest.mark.guarantee('TYP-004')
def test_classes_that_are_not_declared_are_not_resources(registry):
    with pytest.raises(TypeError, match=r'ExampleSpec stands for no resource.*kopf\.crd'):
        kopf.on.create(ExampleSpec, registry=registry)


@pytest.mark.guarantee('TYP-009')
def test_the_object_is_given_only_with_its_class(registry):
    with pytest.raises(TypeError, match='obj'):
        arguments.check_signatures(declare_untyped(registry))


def declare_untyped(registry):
    @kopf.on.create(Example, registry=registry)
    def fn(obj):
        pass

    return registry._iter_handlers()


@kopf.crd('incomplete.kopf.dev/v1')
class Incomplete:
    spec: 'NeverDefined'  # noqa: F821


@pytest.mark.guarantee('TYP-004')
async def test_operators_do_not_start_with_incomplete_classes(cluster, registry, run_operator):
    @kopf.on.create(Incomplete, registry=registry)
    def fn(obj: Incomplete, **_):
        pass

    operator = await run_operator()

    with pytest.raises(TypeError, match=r"fn\(\) has .* incomplete class: .*'NeverDefined'"):
        await operator.task


@pytest.mark.guarantee('TYP-018')
def test_operators_without_types_load_nothing_for_them():
    program = """
        import kopf, sys
        from collections.abc import Mapping
        from typing import Any, Optional

        @kopf.on.create('pods')
        def fn(spec: kopf.Spec, body: dict[str, Any], status: Optional[Mapping[str, Any]],
               old: 'Any', new: 'dict | None', **_): ...

        handler = next(kopf.get_default_registry()._iter_handlers())
        assert handler.typed == ()
        print([name for name in sys.modules if name.startswith(('kopf._cogs.codecs', 'msgspec'))])
    """
    done = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(program)], capture_output=True, text=True
    )

    assert done.stdout == '[]\n', done.stdout + done.stderr
