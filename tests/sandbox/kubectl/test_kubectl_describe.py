"""
kubectl describe and explain: objects and resources for people.
"""

import kubectls
import pytest
from kubectls import GROUP

pytestmark = pytest.mark.slow


def test_custom_object_is_described(kubectl, make, namespace):
    made = make(
        kubectls.build_widget(
            metadata={'labels': {'app': 'x'}, 'annotations': {'note': 'hi'}},
            parts=[{'name': 'a', 'count': 3}],
        )
    )

    run = kubectl('describe widget one')

    assert (run.code, run.err) == (0, '')
    assert (
        run.out
        == f"""\
Name:         one
Namespace:    {namespace}
Labels:       app=x
Annotations:  note: hi
API Version:  {GROUP}/v1
Kind:         Widget
Metadata:
  Creation Timestamp:  {made['metadata']['creationTimestamp']}
  Generation:          1
  Resource Version:    {made['metadata']['resourceVersion']}
  UID:                 {made['metadata']['uid']}
Spec:
  Color:  red
  Parts:
    Count:   3
    Name:    a
  Replicas:  1
  Size:      5
Events:      <none>
"""
    )


@pytest.mark.parametrize(
    'body, expected',
    [
        pytest.param(
            kubectls.build_config(a='1'),
            """
        Name: one
        Namespace: {namespace}
        Labels: <none>
        Annotations: <none>

        Data
        ====
        a:
        ----
        1


        BinaryData
        ====

        Events: <none>
        """,
            id='configmap',
        ),
        pytest.param(
            kubectls.build('Secret', stringData={'a': 'bcd'}),
            """
        Name: one
        Namespace: {namespace}
        Labels: <none>
        Annotations: <none>

        Type: Opaque

        Data
        ====
        a: 3 bytes
        """,
            id='secret',
        ),
        pytest.param(
            kubectls.build_pod(automountServiceAccountToken=False),
            """
        Name: one
        Namespace: {namespace}
        Priority: 0
        Service Account: default
        Node: <none>
        Labels: <none>
        Annotations: <none>
        Status: Pending
        IP:
        IPs: <none>
        Containers:
        main:
        Image: busybox:1
        Port: <none>
        Host Port: <none>
        Environment: <none>
        Mounts: <none>
        Volumes: <none>
        QoS Class: BestEffort
        Node-Selectors: <none>
        Tolerations: node.kubernetes.io/not-ready:NoExecute op=Exists for 300s
        node.kubernetes.io/unreachable:NoExecute op=Exists for 300s
        Events: <none>
        """,
            id='pod',
        ),
        pytest.param(
            kubectls.build_deployment(replicas=3),
            """
        Name: one
        Namespace: {namespace}
        CreationTimestamp: {created}
        Labels: app=one
        Annotations: <none>
        Selector: app=one
        Replicas: 3 desired | 0 updated | 0 total | 0 available | 0 unavailable
        StrategyType: RollingUpdate
        MinReadySeconds: 0
        RollingUpdateStrategy: 25% max unavailable, 25% max surge
        Pod Template:
        Labels: app=one
        Containers:
        web:
        Image: nginx:1
        Port: <none>
        Host Port: <none>
        Environment: <none>
        Mounts: <none>
        Volumes: <none>
        Node-Selectors: <none>
        Tolerations: <none>
        Events: <none>
        """,
            id='deployment',
        ),
        pytest.param(
            kubectls.build_job(completions=2),
            """
        Name: one
        Namespace: {namespace}
        Selector: batch.kubernetes.io/controller-uid={uid}
        Labels: batch.kubernetes.io/controller-uid={uid}
        batch.kubernetes.io/job-name=one
        controller-uid={uid}
        job-name=one
        Annotations: <none>
        Parallelism: 1
        Completions: 2
        Completion Mode: NonIndexed
        Suspend: false
        Backoff Limit: 6
        Pods Statuses: 0 Active / 0 Succeeded / 0 Failed
        Pod Template:
        Labels: batch.kubernetes.io/controller-uid={uid}
        batch.kubernetes.io/job-name=one
        controller-uid={uid}
        job-name=one
        Containers:
        main:
        Image: busybox:1
        Port: <none>
        Host Port: <none>
        Environment: <none>
        Mounts: <none>
        Volumes: <none>
        Node-Selectors: <none>
        Tolerations: <none>
        Events: <none>
        """,
            id='job',
        ),
    ],
)
def test_built_in_objects_are_described(kubectl, make, namespace, body, expected):
    made = make(body)

    run = kubectl(f'describe {body["kind"].lower()} one')

    assert (run.code, run.err) == (0, '')
    created = kubectls.format_date(made['metadata']['creationTimestamp'])
    lines = expected.format(namespace=namespace, uid=made['metadata']['uid'], created=created)
    assert kubectls.squeeze(run.out).strip() == kubectls.squeeze(lines).strip()


def test_namespace_is_described(kubectl, namespace):
    run = kubectl(f'describe namespace {namespace}')

    assert kubectls.squeeze(run.out) == (
        f'Name: {namespace}\nLabels: kubernetes.io/metadata.name={namespace}\nAnnotations: <none>\nStatus: Active\n\n'
        'No resource quota.\n\nNo LimitRange resource.\n'
    )


def test_definition_is_described(kubectl):
    run = kubectl(f'describe crd widgets.{GROUP}')

    assert run.code == 0
    assert 'Type:                  Established' in run.out


def test_all_objects_are_described(kubectl, make):
    make(kubectls.build_widget('a'), kubectls.build_widget('b'))

    run = kubectl('describe widgets')

    assert [row for row in run.rows if row[0] == 'Name:'] == [['Name:', 'a'], ['Name:', 'b']]


def test_absent_objects_are_not_described(kubectl):
    run = kubectl('describe widget none')

    assert (run.code, run.err) == (
        1,
        f'Error from server (NotFound): widgets.{GROUP} "none" not found\n',
    )


@pytest.mark.parametrize(
    'field, expected',
    [
        pytest.param(
            'widget.spec',
            """
        GROUP: {group}
        KIND: Widget
        VERSION: v1

        FIELD: spec <Object>


        DESCRIPTION:
        What is wanted of the widget.

        FIELDS:
        color <string>
        enum: red, green, blue
        The color of the paint.

        extras <Object>
        <no description>

        parts <[]Object>
        What it is made of.

        replicas <integer>
        <no description>

        size <integer> -required-
        The size in inches.
        """,
            id='object',
        ),
        pytest.param(
            'wd.spec.parts',
            """
        GROUP: {group}
        KIND: Widget
        VERSION: v1

        FIELD: parts <[]Object>


        DESCRIPTION:
        What it is made of.

        FIELDS:
        count <integer>
        <no description>

        name <string> -required-
        The name of the part.
        """,
            id='list',
        ),
        pytest.param(
            'widgets.spec.parts.name',
            """
        GROUP: {group}
        KIND: Widget
        VERSION: v1

        FIELD: name <string>


        DESCRIPTION:
        The name of the part.
        """,
            id='scalar',
        ),
    ],
)
def test_fields_of_custom_objects_are_explained(kubectl, field, expected):
    run = kubectl(f'explain {field}')

    assert (run.code, run.err) == (0, '')
    assert (
        kubectls.squeeze(run.out).strip() == kubectls.squeeze(expected.format(group=GROUP)).strip()
    )


@pytest.mark.parametrize(
    'field, lines',
    [
        pytest.param(
            'widget',
            [
                'DESCRIPTION:',
                'A thing for tests.',
                'apiVersion <string>',
                'kind <string>',
                'metadata <ObjectMeta>',
                'spec <Object> -required-',
                'status <Object>',
            ],
            id='custom',
        ),
        pytest.param(
            'pod', ['KIND: Pod', 'VERSION: v1', 'spec <PodSpec>', 'status <PodStatus>'], id='pod'
        ),
        pytest.param(
            'pod.spec.containers',
            [
                'FIELD: containers <[]Container>',
                'name <string> -required-',
                'env <[]EnvVar>',
                'enum: Always, IfNotPresent, Never',
            ],
            id='containers',
        ),
        pytest.param(
            'deployment.spec.strategy.rollingUpdate.maxSurge',
            ['GROUP: apps', 'FIELD: maxSurge <IntOrString>'],
            id='nested',
        ),
        pytest.param(
            'cronjob --api-version=batch/v1',
            ['GROUP: batch', 'KIND: CronJob', 'spec <CronJobSpec>'],
            id='version',
        ),
        pytest.param(
            'configmap.metadata.ownerReferences',
            ['uid <string> -required-', 'blockOwnerDeletion <boolean>'],
            id='metadata',
        ),
        pytest.param('secret', ['data <map[string]string>', 'immutable <boolean>'], id='secret'),
        pytest.param(
            'job.spec',
            ['backoffLimit <integer>', 'template <PodTemplateSpec> -required-'],
            id='job',
        ),
        pytest.param(
            'widget --output=plaintext-openapiv2',
            [
                'KIND: Widget',
                f'VERSION: {GROUP}/v1',
                'A thing for tests.',
                'spec <Object> -required-',
            ],
            id='older-format',
        ),
        pytest.param(
            'pod.spec.containers --output=plaintext-openapiv2',
            ['RESOURCE: containers <[]Object>', 'name <string> -required-'],
            id='older-format-of-built-in',
        ),
    ],
)
def test_resources_are_explained(kubectl, field, lines):
    run = kubectl(f'explain {field}')

    assert (run.code, run.err) == (0, '')
    assert set(lines) <= set(kubectls.squeeze(run.out).splitlines())


def test_all_fields_are_listed(kubectl):
    run = kubectl('explain widget --recursive')

    _, _, fields = run.out.partition('  status\t<Object>\n')
    assert run.code == 0
    assert (
        fields.rstrip()
        == """\
    conditions\t<[]Object>
      status\t<string>
      type\t<string>
    phase\t<string>
    replicas\t<integer>"""
    )
    assert '    managedFields\t<[]ManagedFieldsEntry>\n      apiVersion\t<string>\n' in run.out


@pytest.mark.parametrize(
    'field, problem',
    [
        pytest.param('widget.none', 'error: field "none" does not exist', id='field'),
        pytest.param('pod.spec.none', 'error: field "none" does not exist', id='built-in-field'),
        pytest.param('gizmo', 'the server doesn\'t have a resource type "gizmo"', id='resource'),
    ],
)
def test_unknown_fields_are_not_explained(kubectl, field, problem):
    run = kubectl(f'explain {field}')

    assert (run.code, run.err) == (1, f'{problem}\n')
