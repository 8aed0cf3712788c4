"""
kubectl get -w, wait, events -w: what lasts until something happens.
"""

import contextlib

import kubectls
import pytest
from kubectls import GROUP

pytestmark = pytest.mark.slow


@pytest.fixture
def change(sandbox, namespace):
    """Patches a widget, not by kubectl."""

    def change(patch, **options):
        return sandbox.patch('widgets', 'one', patch, namespace, **options)

    return change


@pytest.fixture
def remove(sandbox, namespace):
    """Deletes objects, not by kubectl."""

    def remove(resource, name='one'):
        sandbox.delete(resource, name, namespace)

    return remove


@pytest.fixture
def start_waiting(kubectl, sandbox):
    """
    Starts a command, and returns it when its first request of this kind is known to be served.
    """
    with contextlib.ExitStack() as stack:

        def start_waiting(command, verb):
            with sandbox.faults.inject(verb=verb, stall=True) as stalled:
                process = stack.enter_context(kubectl.start(command))
                stalled.wait_until_hit(kubectls.PATIENCE)
            return process

        yield start_waiting


def test_changes_are_shown_as_they_come(kubectl, make, change, remove):
    make(kubectls.build_widget())

    with kubectl.start('get widgets -w') as watch:
        assert watch.take(2) == [['NAME', 'SIZE', 'AGE'], ['one', '5', 'AGE']]
        change({'spec': {'size': 8}})
        assert watch.take(1) == [['one', '8', 'AGE']]
        make(kubectls.build_widget('two'))
        assert watch.take(1) == [['two', '5', 'AGE']]
        remove('widgets')
        assert watch.take(1) == [['one', '8', 'AGE']]


def test_types_of_changes_are_shown_if_asked(kubectl, make, change, remove):
    make(kubectls.build_widget())

    with kubectl.start('get widgets -w --output-watch-events') as watch:
        assert watch.take(2) == [['EVENT', 'NAME', 'SIZE', 'AGE'], ['ADDED', 'one', '5', 'AGE']]
        change({'spec': {'size': 8}})
        remove('widgets')
        assert watch.take(2) == [['MODIFIED', 'one', '8', 'AGE'], ['DELETED', 'one', '8', 'AGE']]


def test_selected_objects_come_and_go(kubectl, make, change):
    make(kubectls.build_widget(metadata={'labels': {'app': 'x'}}))

    with kubectl.start('get widgets -w --output-watch-events --no-headers -l app=x') as watch:
        assert watch.take(1) == [['ADDED', 'one', '5', 'AGE']]
        change({'metadata': {'labels': {'app': 'y'}}})
        change({'spec': {'size': 8}})
        change({'metadata': {'labels': {'app': 'x'}}})
        assert watch.take(2) == [['DELETED', 'one', '5', 'AGE'], ['ADDED', 'one', '8', 'AGE']]


def test_one_object_is_watched(start_waiting, make, change):
    make(kubectls.build_widget(), kubectls.build_widget('two'))

    watch = start_waiting('get widget one -w -o name', verb='watch')
    assert watch.take(1) == [[f'widget.{GROUP}/one']]
    change({'spec': {'size': 8}})
    assert watch.take(1) == [[f'widget.{GROUP}/one']]


def test_objects_are_watched_in_full(kubectl, make, change):
    make(kubectls.build_widget())

    with kubectl.start('get widgets -w -o jsonpath=\'{.spec.size}{"\\n"}\'') as watch:
        assert watch.take(1) == [['5']]
        change({'spec': {'size': 8}})
        assert watch.take(1) == [['8']]


def test_changes_alone_are_watched(start_waiting, make, change):
    make(kubectls.build_widget())

    watch = start_waiting(
        'get widgets --watch-only -o jsonpath=\'{.spec.size}{"\\n"}\'', verb='watch'
    )
    change({'spec': {'size': 8}})
    assert watch.take(1) == [['8']]


def test_all_namespaces_are_watched(kubectl, make, namespace, remove):
    label = {'labels': {'of': namespace}}
    make(kubectls.build_config(metadata=label))

    with kubectl.start(f'get configmaps -A -w -l of={namespace}') as watch:
        assert watch.take(2) == [
            ['NAMESPACE', 'NAME', 'DATA', 'AGE'],
            [namespace, 'one', '0', 'AGE'],
        ]
        make(kubectls.build_config('two', metadata=label, x='1'))
        assert watch.take(1) == [[namespace, 'two', '1', 'AGE']]


def test_watch_ends_in_time(kubectl, make):
    make(kubectls.build_widget())

    run = kubectl('get widgets -w --request-timeout=1s')

    assert run.rows == [['NAME', 'SIZE', 'AGE'], ['one', '5', 'AGE']]


@pytest.mark.parametrize(
    'condition, status',
    [
        pytest.param(
            'condition=Ready', {'conditions': [{'type': 'Ready', 'status': 'True'}]}, id='condition'
        ),
        pytest.param(
            'condition=Ready=False',
            {'conditions': [{'type': 'Ready', 'status': 'False'}]},
            id='false-condition',
        ),
        pytest.param("jsonpath='{.status.phase}'=Done", {'phase': 'Done'}, id='jsonpath'),
        pytest.param(
            "jsonpath='{.status.phase}'", {'phase': 'Whatever'}, id='jsonpath-of-any-value'
        ),
    ],
)
def test_status_is_waited_for(start_waiting, make, change, condition, status):
    make(kubectls.build_widget())

    waiting = start_waiting(f'wait widget/one --for={condition}', verb='watch')
    change({'status': {'replicas': 1}}, subresource='status')
    change({'status': status}, subresource='status')
    run = waiting.finish()

    assert (run.code, run.out, run.err) == (0, f'widget.{GROUP}/one condition met\n', '')


@pytest.mark.parametrize(
    'condition', ['condition=Ready', "jsonpath='{.status.phase}'=Done", 'create']
)
def test_nothing_is_waited_for_if_it_is_there_already(kubectl, make, change, condition):
    make(kubectls.build_widget())
    change(
        {'status': {'phase': 'Done', 'conditions': [{'type': 'Ready', 'status': 'True'}]}},
        subresource='status',
    )

    run = kubectl(f'wait widget/one --for={condition}')

    assert (run.code, run.out, run.err) == (0, f'widget.{GROUP}/one condition met\n', '')


def test_built_in_objects_are_waited_for(start_waiting, make, sandbox, namespace):
    make(kubectls.build_deployment())

    waiting = start_waiting('wait deployment --all --for=condition=Available', verb='watch')
    status = {'conditions': [{'type': 'Available', 'status': 'True'}]}
    sandbox.patch('deployments', 'one', {'status': status}, namespace, subresource='status')

    assert waiting.finish().out == 'deployment.apps/one condition met\n'


@pytest.mark.parametrize(
    'body, shown',
    [
        pytest.param(kubectls.build_widget(), f'widget.{GROUP}/one', id='custom'),
        pytest.param(kubectls.build_pod(), 'pod/one', id='built-in'),
    ],
)
def test_deletion_is_waited_for(start_waiting, make, remove, body, shown):
    make(body)

    waiting = start_waiting(f'wait {shown} --for=delete', verb='watch')
    remove(shown.split('/')[0])
    run = waiting.finish()

    assert (run.code, run.out, run.err) == (0, f'{shown} condition met\n', '')


def test_creation_is_waited_for(start_waiting, make):
    waiting = start_waiting('wait widget/one --for=create', verb='get')
    make(kubectls.build_widget())
    run = waiting.finish()

    assert (run.code, run.out, run.err) == (0, f'widget.{GROUP}/one condition met\n', '')


def test_definition_is_established(kubectl):
    run = kubectl(f'wait crd/widgets.{GROUP} --for=condition=Established')

    assert (
        run.out == f'customresourcedefinition.apiextensions.k8s.io/widgets.{GROUP} condition met\n'
    )


@pytest.mark.parametrize(
    'command, problem',
    [
        pytest.param(
            'wait widget/one --for=condition=Ready --timeout=1s',
            'error: timed out waiting for the condition on widgets/one',
            id='condition',
        ),
        pytest.param(
            'wait widget/one --for=delete --timeout=1s',
            'error: timed out waiting for the condition on widgets/one',
            id='deletion',
        ),
        pytest.param(
            'wait widget/none --for=create --timeout=1s',
            'error: timed out waiting for the condition',
            id='creation',
        ),
        pytest.param(
            'wait widget/none --for=condition=Ready',
            f'Error from server (NotFound): widgets.{GROUP} "none" not found',
            id='absent',
        ),
    ],
)
def test_waiting_has_limits(kubectl, make, command, problem):
    make(kubectls.build_widget())

    run = kubectl(command)

    assert (run.code, run.out) == (1, '')
    # After the complaints about too short a watch, if it was slow.
    assert run.err.endswith(f'{problem}\n')
