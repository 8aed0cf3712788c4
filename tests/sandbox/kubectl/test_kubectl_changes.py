"""
kubectl label, annotate, patch, edit, replace, scale, set, rollout: changes of what is there.
"""

import json

import kubectls
import pytest
import yaml
from kubectls import GROUP

pytestmark = pytest.mark.slow

SHOWN = f'widget.{GROUP}/one'


@pytest.fixture
def editor(tmp_path):
    """Makes an editor that replaces one text with another, as a person would do."""

    def editor(pattern, replacement):
        path = tmp_path / 'editor'
        path.write_text(f'#!/bin/sh\nsed -i \'s/{pattern}/{replacement}/\' "$1"\n')
        path.chmod(0o755)
        return path

    return editor


@pytest.mark.parametrize(
    'command, out, labels',
    [
        pytest.param('b=2', 'labeled', {'a': '1', 'b': '2'}, id='added'),
        pytest.param('a=1', 'not labeled', {'a': '1'}, id='same'),
        pytest.param('a=2 --overwrite', 'labeled', {'a': '2'}, id='overwritten'),
        pytest.param('a-', 'unlabeled', {}, id='removed'),
        pytest.param('a- b=2', 'labeled', {'b': '2'}, id='both'),
    ],
)
@pytest.mark.parametrize(
    'build', [kubectls.build_widget, kubectls.build_config, kubectls.build_pod]
)
def test_objects_are_labelled(kubectl, make, read, build, command, out, labels):
    made = make(build(metadata={'labels': {'a': '1'}}))
    shown = SHOWN if made['kind'] == 'Widget' else f'{made["kind"].lower()}/one'

    run = kubectl(f'label {shown} {command}')

    assert (run.code, run.out, run.err) == (0, f'{shown} {out}\n', '')
    assert read(shown.split('/')[0])['metadata'].get('labels', {}) == labels


@pytest.mark.parametrize(
    'command, annotations',
    [
        pytest.param('b=2', {'a': '1', 'b': '2'}, id='added'),
        pytest.param('a=2 --overwrite', {'a': '2'}, id='overwritten'),
        pytest.param('a-', {}, id='removed'),
    ],
)
@pytest.mark.parametrize(
    'shown, build',
    [
        pytest.param(SHOWN, kubectls.build_widget, id='custom'),
        pytest.param('configmap/one', kubectls.build_config, id='configmap'),
    ],
)
def test_objects_are_annotated(kubectl, make, read, shown, build, command, annotations):
    make(build(metadata={'annotations': {'a': '1'}}))

    run = kubectl(f'annotate {shown} {command}')

    assert (run.code, run.out, run.err) == (0, f'{shown} annotated\n', '')
    assert read(shown.split('/')[0])['metadata'].get('annotations', {}) == annotations


def test_many_objects_are_labelled_and_annotated(kubectl, make):
    make(kubectls.build_widget('a'), kubectls.build_widget('b', metadata={'labels': {'x': 'y'}}))

    assert (
        kubectl('label widgets --all z=1').out
        == f'widget.{GROUP}/a labeled\nwidget.{GROUP}/b labeled\n'
    )
    assert kubectl('annotate widgets -l x=y note=hi').out == f'widget.{GROUP}/b annotated\n'
    assert kubectl('get widgets -l z=1 -o name').out == f'widget.{GROUP}/a\nwidget.{GROUP}/b\n'


def test_namespace_is_labelled_and_annotated(kubectl, namespace):
    assert (
        kubectl(f'label namespace {namespace} of={namespace}').out
        == f'namespace/{namespace} labeled\n'
    )
    assert (
        kubectl(f'annotate namespace {namespace} a=b').out == f'namespace/{namespace} annotated\n'
    )
    assert kubectl(f'get namespaces -l of={namespace} -o name').out == f'namespace/{namespace}\n'


@pytest.mark.parametrize(
    'command, problem',
    [
        pytest.param(
            'label widget one a=2',
            "error: 'a' already has a value (1), and --overwrite is false",
            id='label',
        ),
        pytest.param(
            'annotate widget one a=2',
            'error: --overwrite is false but found the following declared '
            "annotation(s): 'a' already has a value (1)",
            id='annotation',
        ),
        pytest.param(
            'label widget none a=2',
            f'Error from server (NotFound): widgets.{GROUP} "none" not found',
            id='absent',
        ),
        pytest.param(
            "label widget one 'bad key=1'",
            'The Widget "one" is invalid: metadata.labels: Invalid value: '
            "\"bad key\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and "
            "end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            id='key',
        ),
    ],
)
def test_wrong_labels_and_annotations_are_refused(kubectl, make, command, problem):
    make(kubectls.build_widget(metadata={'labels': {'a': '1'}, 'annotations': {'a': '1'}}))

    run = kubectl(command)

    assert (run.code, run.out, run.err) == (1, '', f'{problem}\n')


@pytest.mark.parametrize(
    'type, patch, size',
    [
        pytest.param('merge', {'spec': {'size': 7}}, 7, id='merge'),
        pytest.param('json', [{'op': 'replace', 'path': '/spec/size', 'value': 7}], 7, id='json'),
        pytest.param(
            'json',
            [
                {'op': 'test', 'path': '/spec/size', 'value': 5},
                {'op': 'copy', 'from': '/spec/replicas', 'path': '/spec/size'},
            ],
            1,
            id='json-in-steps',
        ),
    ],
)
def test_custom_object_is_patched(kubectl, make, read, type, patch, size):
    make(kubectls.build_widget())

    run = kubectl(f"patch widget one --type={type} -p '{json.dumps(patch)}'")

    assert (run.code, run.out, run.err) == (0, f'{SHOWN} patched\n', '')
    assert read('widgets')['spec']['size'] == size


def test_patch_that_changes_nothing_is_told(kubectl, make):
    make(kubectls.build_widget())

    run = kubectl('patch widget one --type=merge -p \'{"spec":{"size":5}}\'')

    assert run.out == f'{SHOWN} patched (no change)\n'


@pytest.mark.parametrize(
    'type, patch, names',
    [
        pytest.param(
            'strategic',
            {'containers': [{'name': 'new', 'image': 'x'}]},
            {'web', 'new'},
            id='strategic',
        ),
        pytest.param(
            'strategic',
            {'containers': [{'name': 'web', '$patch': 'delete'}, {'name': 'new', 'image': 'x'}]},
            {'new'},
            id='strategic-deletion',
        ),
        pytest.param(
            'strategic',
            {'containers': [{'name': 'new', 'image': 'x'}, {'$patch': 'replace'}]},
            {'new'},
            id='strategic-replacement',
        ),
        pytest.param('merge', {'containers': [{'name': 'new', 'image': 'x'}]}, {'new'}, id='merge'),
    ],
)
def test_deployment_is_patched(kubectl, make, read, type, patch, names):
    make(kubectls.build_deployment())

    run = kubectl(
        f"patch deployment one --type={type} -p '{json.dumps({'spec': {'template': {'spec': patch}}})}'"
    )

    assert (run.code, run.out, run.err) == (0, 'deployment.apps/one patched\n', '')
    assert {
        container['name']
        for container in read('deployments')['spec']['template']['spec']['containers']
    } == names


def test_deployment_is_patched_by_default_strategically(kubectl, make, read):
    make(kubectls.build_deployment())

    patch = {'spec': {'template': {'spec': {'containers': [{'name': 'web', 'image': 'nginx:2'}]}}}}
    run = kubectl(f"patch deployment one -p '{json.dumps(patch)}'")

    assert run.code == 0
    assert read('deployments')['spec']['template']['spec']['containers'][0]['image'] == 'nginx:2'


@pytest.mark.parametrize(
    'body, shown',
    [
        pytest.param(kubectls.build_widget(), SHOWN, id='custom'),
        pytest.param(kubectls.build_pod(), 'pod/one', id='pod'),
    ],
)
def test_status_is_patched_apart_from_the_rest(kubectl, make, read, body, shown):
    made = make(body)

    patch = {'spec': {'size': 99}, 'status': {'phase': 'Running'}}
    ignored = kubectl(
        f"patch {shown} --type=merge -p '{json.dumps({'status': {'phase': 'Running'}})}'"
    )
    run = kubectl(f"patch {shown} --type=merge --subresource=status -p '{json.dumps(patch)}'")

    assert ignored.out == f'{shown} patched (no change)\n'
    assert (run.code, run.out) == (0, f'{shown} patched\n')
    changed = read(shown.split('/')[0])
    assert changed['status']['phase'] == 'Running'
    assert changed['spec'] == made['spec']
    assert changed['metadata']['generation'] == made['metadata']['generation']


def test_scale_is_patched(kubectl, make, read):
    make(kubectls.build_deployment())

    run = kubectl(
        'patch deployment one --subresource=scale --type=merge -p \'{"spec":{"replicas":7}}\''
    )

    assert run.out == 'scale.autoscaling/one patched\n'
    assert read('deployments')['spec']['replicas'] == 7


def test_dry_run_of_a_patch_changes_nothing(kubectl, make, read):
    make(kubectls.build_widget())

    run = kubectl(
        'patch widget one --type=merge -p \'{"spec":{"size":7}}\' --dry-run=server -o jsonpath={.spec.size}'
    )

    assert run.out == '7'
    assert read('widgets')['spec']['size'] == 5


@pytest.mark.parametrize(
    'command, problem',
    [
        pytest.param(
            'widget one --type=merge -p \'{"spec":{"size":700}}\'',
            'The Widget "one" is invalid: spec.size: '
            'Invalid value: 700: spec.size in body should be less than or equal to 100',
            id='invalid',
        ),
        pytest.param(
            'widget one --type=json -p \'[{"op":"test","path":"/spec/size","value":7}]\'',
            'The request is invalid: the server rejected our request due to an error in our request',
            id='test',
        ),
        pytest.param(
            'widget one --type=json -p \'[{"op":"remove","path":"/spec/none"}]\'',
            'The request is invalid: the server rejected our request due to an error in our request',
            id='path',
        ),
        pytest.param(
            'widget one --type=strategic -p \'{"spec":{"size":7}}\'',
            f'error: application/strategic-merge-patch+json is not supported by {GROUP}/v1, Kind=Widget: '
            'the body of the request was in an unknown format - accepted media types include: '
            'application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml',
            id='type',
        ),
        pytest.param(
            'widget none --type=merge -p {}',
            f'Error from server (NotFound): widgets.{GROUP} "none" not found',
            id='absent',
        ),
        pytest.param(
            'deployment one -p \'{"spec":{"selector":{"matchLabels":{"app":"other"}}}}\'',
            'The Deployment "one" is invalid: \n'
            '* spec.template.metadata.labels: Invalid value: {"app":"one"}: `selector` does not match template '
            '`labels`\n'
            '* spec.selector: Invalid value: {"matchLabels":{"app":"other"}}: field is immutable',
            id='immutable',
        ),
        pytest.param(
            'deployment one -p '
            '\'{"spec":{"template":{"spec":{"containers":[{"name":"web","$patch":"delete"}]}}}}\'',
            'The Deployment "one" is invalid: spec.template.spec.containers: Required value',
            id='nothing-left',
        ),
    ],
)
def test_wrong_patches_are_refused(kubectl, make, command, problem):
    make(kubectls.build_widget(), kubectls.build_deployment())

    run = kubectl(f'patch {command}')

    assert (run.code, run.out, run.err) == (1, '', f'{problem}\n')


def test_specification_of_a_pod_cannot_be_changed_but_its_image_can(kubectl, make):
    make(kubectls.build_pod())

    image = kubectl('set image pod/one main=busybox:2')
    node = kubectl('patch pod one -p \'{"spec":{"nodeName":"x"}}\'')

    assert image.out == 'pod/one image updated\n'
    assert node.err.startswith(
        'The Pod "one" is invalid: spec: Forbidden: pod updates may not change fields other '
        'than `spec.containers[*].image`,`spec.initContainers[*].image`,'
    )


@pytest.mark.parametrize(
    'body, shown, edit',
    [
        pytest.param(kubectls.build_widget(), SHOWN, ('size: .*', 'size: 42'), id='custom'),
        pytest.param(
            kubectls.build_config(x='1'), 'configmap/one', ('x: .*', 'z: two'), id='configmap'
        ),
        pytest.param(
            kubectls.build_deployment(),
            'deployment.apps/one',
            ('image: .*', 'image: nginx:2'),
            id='deployment',
        ),
    ],
)
def test_objects_are_edited(kubectl, make, read, editor, body, shown, edit):
    make(body)

    run = kubectl(f'edit {shown}', editor=editor(*edit))

    assert (run.code, run.out, run.err) == (0, f'{shown} edited\n', '')
    assert edit[1] in yaml.safe_dump(read(shown.split('/')[0]))


def test_status_is_edited(kubectl, make, read, editor):
    make(kubectls.build_pod())

    run = kubectl('edit pod one --subresource=status', editor=editor('phase: .*', 'phase: Running'))

    assert run.out == 'pod/one edited\n'
    assert read('pods')['status']['phase'] == 'Running'


def test_edit_without_changes_is_cancelled(kubectl, make, editor):
    make(kubectls.build_widget())

    run = kubectl('edit widget one', editor=editor('nothing', 'something'))

    assert (run.code, run.out, run.err) == (0, '', 'Edit cancelled, no changes made.\n')


def test_wrong_edit_is_refused(kubectl, make, read, editor):
    make(kubectls.build_widget())

    run = kubectl('edit widget one', editor=editor('size: .*', 'size: 4200'))

    assert run.code == 1
    assert run.err.startswith(f'error: widgets.{GROUP} "one" is invalid\n')
    assert read('widgets')['spec']['size'] == 5


def test_objects_are_replaced(kubectl, make, read):
    old = make(kubectls.build_widget(metadata={'labels': {'a': 'b'}}, color='blue'))

    run = kubectl('replace -f -', kubectls.build_widget(size=7))

    assert (run.code, run.out, run.err) == (0, f'{SHOWN} replaced\n', '')
    new = read('widgets')
    assert new['spec'] == {'size': 7, 'color': 'red', 'replicas': 1}
    assert 'labels' not in new['metadata']
    assert new['metadata']['uid'] == old['metadata']['uid']


def test_objects_are_replaced_by_force(kubectl, make, read, namespace):
    old = make(kubectls.build_job())

    run = kubectl('replace --force -f -', kubectls.build_job(backoffLimit=1))

    assert (
        run.out == f'job.batch "one" deleted from {namespace} namespace\njob.batch/one replaced\n'
    )
    assert read('jobs')['spec']['backoffLimit'] == 1
    assert read('jobs')['metadata']['uid'] != old['metadata']['uid']


def test_outdated_objects_are_not_replaced(kubectl, make, sandbox, namespace):
    old = make(kubectls.build_config(x='1'))
    sandbox.patch('configmaps', 'one', {'data': {'x': '2'}}, namespace)

    run = kubectl('replace -f -', {**old, 'data': {'x': '3'}})

    assert run.code == 1
    assert run.err == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on '
        'configmaps "one": the object has been modified; please apply your changes to the latest '
        'version and try again\n'
    )


def test_absent_objects_are_not_replaced(kubectl):
    run = kubectl('replace -f -', kubectls.build_pod())

    assert (
        run.err
        == 'Error from server (NotFound): error when replacing "STDIN": pods "one" not found\n'
    )


@pytest.mark.parametrize(
    'body, shown',
    [
        pytest.param(kubectls.build_widget(), SHOWN, id='custom'),
        pytest.param(kubectls.build_deployment(), 'deployment.apps/one', id='deployment'),
    ],
)
def test_objects_are_scaled(kubectl, make, read, body, shown):
    make(body)

    run = kubectl(f'scale {shown} --replicas=5')
    expected = kubectl(f'scale {shown} --replicas=6 --current-replicas=5')
    unexpected = kubectl(f'scale {shown} --replicas=7 --current-replicas=5')

    assert (run.code, run.out, run.err) == (0, f'{shown} scaled\n', '')
    assert expected.out == f'{shown} scaled\n'
    assert (unexpected.code, unexpected.err) == (1, 'error: Expected replicas to be 5, was 6\n')
    assert read(shown.split('/')[0])['spec']['replicas'] == 6


@pytest.mark.parametrize(
    'command, problem',
    [
        pytest.param(
            'scale widget none --replicas=1',
            f'Error from server (NotFound): widgets.{GROUP} "none" not found',
            id='absent',
        ),
        pytest.param(
            'scale configmap one --replicas=1',
            'Error from server (NotFound): the server could not find the requested resource',
            id='not-scalable',
        ),
    ],
)
def test_wrong_scaling_is_refused(kubectl, make, command, problem):
    make(kubectls.build_config())

    run = kubectl(command)

    assert (run.code, run.out, run.err) == (1, '', f'{problem}\n')


@pytest.mark.parametrize(
    'command, out, field, expected',
    [
        pytest.param(
            'set image deployment/one web=nginx:2', 'image updated', 'image', 'nginx:2', id='image'
        ),
        pytest.param(
            'set env deployment/one A=1',
            'env updated',
            'env',
            [{'name': 'A', 'value': '1'}],
            id='env',
        ),
        pytest.param(
            'set resources deployment/one --limits=cpu=1',
            'resource requirements updated',
            'resources',
            {'limits': {'cpu': '1'}},
            id='resources',
        ),
    ],
)
def test_containers_are_changed(kubectl, make, read, command, out, field, expected):
    make(kubectls.build_deployment())

    run = kubectl(command)

    assert (run.code, run.out, run.err) == (0, f'deployment.apps/one {out}\n', '')
    assert read('deployments')['spec']['template']['spec']['containers'][0][field] == expected


def test_unknown_containers_are_not_changed(kubectl, make):
    make(kubectls.build_deployment())

    assert (
        kubectl('set image deployment/one none=x').err
        == 'error: unable to find container named "none"\n'
    )


def test_rollout_is_restarted_paused_and_resumed(kubectl, make, read):
    make(kubectls.build_deployment())

    assert kubectl('rollout restart deployment/one').out == 'deployment.apps/one restarted\n'
    assert list(read('deployments')['spec']['template']['metadata']['annotations']) == [
        'kubectl.kubernetes.io/restartedAt'
    ]
    assert kubectl('rollout pause deployment/one').out == 'deployment.apps/one paused\n'
    assert read('deployments')['spec']['paused'] is True
    assert kubectl('rollout resume deployment/one').out == 'deployment.apps/one resumed\n'
    assert 'paused' not in read('deployments')['spec']


def test_rollout_is_waited_for(kubectl, make, sandbox, namespace):
    make(kubectls.build_deployment())
    ready = {
        'observedGeneration': 1,
        'replicas': 1,
        'updatedReplicas': 1,
        'readyReplicas': 1,
        'availableReplicas': 1,
    }

    with kubectl.start('rollout status deployment/one') as rollout:
        assert rollout.take(1) == [['Waiting for deployment spec update to be observed...']]
        sandbox.patch(
            'deployments',
            'one',
            {'status': {'observedGeneration': 1, 'replicas': 1}},
            namespace,
            subresource='status',
        )
        assert rollout.take(1) == [
            [
                'Waiting for deployment "one" rollout to finish: 0 out of 1 new replicas have been updated...'
            ]
        ]
        sandbox.patch('deployments', 'one', {'status': ready}, namespace, subresource='status')
        run = rollout.finish()

    assert (run.code, run.out) == (0, 'deployment "one" successfully rolled out\n')


def test_rollout_has_no_history_without_controllers(kubectl, make):
    make(kubectls.build_deployment())

    assert (
        kubectl('rollout history deployment/one').out
        == 'deployment.apps/one \nNo rollout history found.\n'
    )
