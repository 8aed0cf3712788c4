"""
kubectl delete: finalizers, grace periods, cascades, collections.
"""

import functools

import kubectls
import pytest
from kubectls import GROUP

pytestmark = pytest.mark.slow

FINALIZERS = {'finalizers': [f'{GROUP}/hold']}

RELUCTANT = (
    'Warning: Immediate deletion does not wait for confirmation that the running resource has been '
    'terminated. The resource may continue to run on the cluster indefinitely.\n'
)


@pytest.fixture
def count(sandbox, namespace):
    """Counts the objects in the namespace, besides those that the cluster keeps there."""

    def count(resource):
        objects = sandbox.list(resource, namespace, fields='metadata.name!=kube-root-ca.crt')
        return len(objects)

    return count


@pytest.fixture
def own(make, namespace):
    """Makes a config map that belongs to a widget."""

    def own(owner, name='owned', **metadata):
        reference = {
            'apiVersion': f'{GROUP}/v1',
            'kind': 'Widget',
            'name': owner['metadata']['name'],
            'uid': owner['metadata']['uid'],
            'blockOwnerDeletion': True,
        }
        return make(
            kubectls.build_config(name, metadata={'ownerReferences': [reference], **metadata})
        )

    return own


@pytest.mark.parametrize(
    'body, shown',
    [
        pytest.param(kubectls.build_widget(), f'widget.{GROUP}', id='custom'),
        pytest.param(kubectls.build_config(), 'configmap', id='configmap'),
        pytest.param(kubectls.build('Secret'), 'secret', id='secret'),
        pytest.param(kubectls.build_pod(), 'pod', id='pod'),
        pytest.param(kubectls.build_deployment(), 'deployment.apps', id='deployment'),
        pytest.param(kubectls.build_job(), 'job.batch', id='job'),
    ],
)
def test_objects_are_deleted(kubectl, make, count, namespace, body, shown):
    make(body)

    run = kubectl(f'delete {shown} one')

    assert (run.code, run.out, run.err) == (
        0,
        f'{shown} "one" deleted from {namespace} namespace\n',
        '',
    )
    assert count(shown) == 0


def test_objects_are_deleted_by_their_manifests(kubectl, make, namespace):
    objects = [kubectls.build_config(), kubectls.build_widget()]
    make(*objects)

    run = kubectl('delete -f -', *objects)

    assert run.out == (
        f'configmap "one" deleted from {namespace} namespace\n'
        f'widget.{GROUP} "one" deleted from {namespace} namespace\n'
    )


def test_absent_objects_are_not_found(kubectl, make):
    run = kubectl('delete widget none')
    ignored = kubectl('delete widget none --ignore-not-found')

    assert (run.code, run.out) == (1, '')
    assert run.err == f'Error from server (NotFound): widgets.{GROUP} "none" not found\n'
    assert (ignored.code, ignored.out, ignored.err) == (0, '', '')


@pytest.mark.parametrize(
    'options, left',
    [
        pytest.param('--all', [], id='all'),
        pytest.param('-l app=x', ['b', 'c'], id='labels'),
        pytest.param("-l 'app notin (x)'", ['a'], id='other-labels'),
        pytest.param('--field-selector=metadata.name=b', ['a', 'c'], id='fields'),
        pytest.param('a c', ['b'], id='names'),
    ],
)
@pytest.mark.parametrize(
    'build', [kubectls.build_widget, functools.partial(kubectls.build, 'Secret')]
)
def test_several_objects_are_deleted(kubectl, make, sandbox, namespace, build, options, left):
    made = make(
        build('a', metadata={'labels': {'app': 'x'}}),
        build('b', metadata={'labels': {'app': 'y'}}),
        build('c'),
    )
    resource = f'{made["kind"].lower()}s'

    run = kubectl(f'delete {resource} {options}')

    assert run.code == 0
    assert [found['metadata']['name'] for found in sandbox.list(resource, namespace)] == left


def test_different_resources_are_deleted_at_once(kubectl, make, count):
    make(
        kubectls.build_pod(),
        kubectls.build_deployment(),
        kubectls.build_job(),
        kubectls.build_config(),
    )

    run = kubectl('delete all --all')

    assert run.code == 0
    assert [count(resource) for resource in ('pods', 'deployments', 'jobs', 'configmaps')] == [
        0,
        0,
        0,
        1,
    ]


def test_nothing_to_delete(kubectl):
    assert kubectl('delete widgets --all').out == 'No resources found\n'


@pytest.mark.parametrize(
    'command', ['delete widget one', 'delete widgets --all', 'delete configmap one']
)
def test_dry_run_deletes_nothing(kubectl, make, count, command):
    make(kubectls.build_widget(), kubectls.build_config())

    run = kubectl(f'{command} --dry-run=server')

    assert run.code == 0
    assert run.out.endswith('(server dry run)\n')
    assert (count('widgets'), count('configmaps')) == (1, 1)


def test_finalizers_hold_the_object(kubectl, make, read, count, namespace):
    make(kubectls.build_widget(metadata=FINALIZERS))

    impatient = kubectl('delete widget one --timeout=1s')
    unwaited = kubectl('delete widget one --wait=false')

    assert impatient.code == 1
    assert impatient.err.endswith('error: timed out waiting for the condition on widgets/one\n')
    assert (unwaited.code, unwaited.out) == (
        0,
        f'widget.{GROUP} "one" deleted from {namespace} namespace\n',
    )
    assert read('widgets')['metadata']['deletionGracePeriodSeconds'] == 0
    assert 'deletionTimestamp' in read('widgets')['metadata']

    adding = kubectl(
        f'patch widget one --type=merge -p \'{{"metadata":{{"finalizers":["{GROUP}/hold","x.y/z"]}}}}\''
    )
    releasing = kubectl('patch widget one --type=merge -p \'{"metadata":{"finalizers":null}}\'')

    assert adding.err == (
        'The Widget "one" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added '
        'if the object is being deleted, found new finalizers []string{"x.y/z"}\n'
    )
    assert releasing.out == f'widget.{GROUP}/one patched\n'
    assert count('widgets') == 0


def test_deletion_is_waited_for_until_the_finalizers_are_gone(kubectl, sandbox, namespace, make):
    make(kubectls.build_widget(metadata=FINALIZERS))

    with kubectl.start('delete widget one') as deleting:
        sandbox.wait(
            'widgets',
            'one',
            lambda body: 'deletionTimestamp' in body['metadata'],
            namespace,
            timeout=kubectls.PATIENCE,
        )
        sandbox.patch('widgets', 'one', {'metadata': {'finalizers': None}}, namespace)
        run = deleting.finish()

    assert (run.code, run.err) == (0, '')


@pytest.mark.parametrize(
    'options, grace',
    [
        pytest.param('', 30, id='default'),
        pytest.param('--grace-period=5', 5, id='given'),
        pytest.param('--now', 1, id='now'),
    ],
)
def test_assigned_pod_has_time_to_finish(kubectl, make, read, options, grace):
    make(kubectls.build_pod(nodeName='somewhere'))

    run = kubectl(f'delete pod one --wait=false {options}')

    assert run.code == 0
    assert read('pods')['metadata']['deletionGracePeriodSeconds'] == grace
    assert kubectl('get pods').rows[1] == ['one', '0/1', 'Terminating', '0', 'AGE']


def test_pod_is_deleted_by_force(kubectl, make, count, namespace):
    make(kubectls.build_pod(nodeName='somewhere'))

    kubectl('delete pod one --wait=false')
    run = kubectl('delete pod one --force')

    assert (run.code, run.out) == (0, f'pod "one" force deleted from {namespace} namespace\n')
    assert run.err == RELUCTANT
    assert count('pods') == 0


def test_force_does_not_overcome_finalizers(kubectl, make, count):
    make(kubectls.build_widget(metadata=FINALIZERS))

    run = kubectl('delete widget one --force --wait=false')

    assert (run.code, run.err) == (0, RELUCTANT)
    assert count('widgets') == 1


@pytest.mark.parametrize('options', ['', '--cascade=background', '--cascade=foreground'])
def test_dependents_go_with_their_owner(kubectl, make, own, sandbox, namespace, options):
    own(make(kubectls.build_widget()))

    run = kubectl(f'delete widget one {options}')

    assert (run.code, run.err) == (0, '')
    assert sandbox.wait('configmaps', 'owned', lambda body: body is None, namespace) is None


def test_dependents_are_orphaned(kubectl, make, own, read, count):
    own(make(kubectls.build_widget()))

    run = kubectl('delete widget one --cascade=orphan')

    assert (run.code, run.err) == (0, '')
    assert count('widgets') == 0
    assert 'ownerReferences' not in read('configmaps', 'owned')['metadata']


def test_owner_waits_for_its_dependents_in_foreground(
    kubectl, make, own, sandbox, namespace, read, count
):
    own(make(kubectls.build_widget()), **FINALIZERS)

    run = kubectl('delete widget one --cascade=foreground --wait=false')

    assert run.code == 0
    assert read('widgets')['metadata']['finalizers'] == ['foregroundDeletion']
    sandbox.wait(
        'configmaps', 'owned', lambda body: 'deletionTimestamp' in body['metadata'], namespace
    )
    sandbox.patch('configmaps', 'owned', {'metadata': {'finalizers': None}}, namespace)
    assert sandbox.wait('widgets', 'one', lambda body: body is None, namespace) is None


def test_namespace_goes_with_its_contents(kubectl, sandbox, namespace, make):
    make(kubectls.build_config(), kubectls.build_widget())

    run = kubectl(f'delete namespace {namespace}')

    assert (run.code, run.out) == (0, f'namespace "{namespace}" deleted\n')
    assert not sandbox.list('widgets', namespace)


def test_namespace_waits_for_its_contents(kubectl, sandbox, namespace, make):
    make(kubectls.build_widget(metadata=FINALIZERS))

    kubectl(f'delete namespace {namespace} --wait=false')

    assert kubectl('get namespaces').rows.count([namespace, 'Terminating', 'AGE']) == 1
    refused = kubectl('create configmap late')
    assert refused.err == (
        f'error: failed to create configmap: configmaps "late" is forbidden: unable to create new '
        f'content in namespace {namespace} because it is being terminated\n'
    )
    sandbox.patch('widgets', 'one', {'metadata': {'finalizers': None}}, namespace)
    assert kubectl(f'wait namespace/{namespace} --for=delete').code == 0


@pytest.mark.parametrize('name', ['default', 'kube-system', 'kube-public'])
def test_namespaces_of_the_system_are_never_deleted(kubectl, name):
    run = kubectl(f'delete namespace {name}')

    assert run.code == 1
    assert run.err.endswith(
        f'Error from server (Forbidden): namespaces "{name}" is forbidden: '
        'this namespace may not be deleted\n'
    )
