"""
kubectl create, run, expose, autoscale: objects from files and from options.
"""

import base64
import json

import kubectls
import pytest
from kubectls import GROUP

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    'command, shown',
    [
        pytest.param('create configmap one --from-literal=a=1', 'configmap/one', id='configmap'),
        pytest.param('create secret generic one --from-literal=a=1', 'secret/one', id='secret'),
        pytest.param(
            'create secret docker-registry one --docker-username=u --docker-password=p',
            'secret/one',
            id='docker-secret',
        ),
        pytest.param('create serviceaccount one', 'serviceaccount/one', id='serviceaccount'),
        pytest.param(
            'create role one --verb=get --resource=pods',
            'role.rbac.authorization.k8s.io/one',
            id='role',
        ),
        pytest.param(
            'create rolebinding one --clusterrole=view --user=me',
            'rolebinding.rbac.authorization.k8s.io/one',
            id='rolebinding',
        ),
        pytest.param(
            'create deployment one --image=nginx --replicas=3',
            'deployment.apps/one',
            id='deployment',
        ),
        pytest.param('create job one --image=busybox -- sleep 1', 'job.batch/one', id='job'),
        pytest.param(
            'create cronjob one --image=busybox --schedule="* * * * *" -- date',
            'cronjob.batch/one',
            id='cronjob',
        ),
        pytest.param('create quota one --hard=pods=10', 'resourcequota/one', id='quota'),
        pytest.param('create service clusterip one --tcp=80:8080', 'service/one', id='clusterip'),
        pytest.param('create service nodeport one --tcp=80:8080', 'service/one', id='nodeport'),
        pytest.param(
            'create service externalname one --external-name=example.com',
            'service/one',
            id='externalname',
        ),
        pytest.param(
            'create ingress one --rule="example.com/*=svc:80"',
            'ingress.networking.k8s.io/one',
            id='ingress',
        ),
        pytest.param(
            'create poddisruptionbudget one --selector=a=b --min-available=1',
            'poddisruptionbudget.policy/one',
            id='disruption-budget',
        ),
        pytest.param('run one --image=busybox --restart=Never -- sleep 1', 'pod/one', id='pod'),
    ],
)
def test_objects_are_made_of_options(kubectl, read, command, shown):
    run = kubectl(command)
    again = kubectl(command)

    assert (run.code, run.out, run.err) == (0, f'{shown} created\n', '')
    assert again.code == 1
    assert again.err.endswith('"one" already exists\n')
    assert read(shown.split('/')[0])['metadata']['name'] == 'one'


@pytest.mark.parametrize(
    'command, shown',
    [
        pytest.param('create namespace', 'namespace', id='namespace'),
        pytest.param(
            'create clusterrole --verb=get --resource=pods',
            'clusterrole.rbac.authorization.k8s.io',
            id='role',
        ),
        pytest.param(
            'create priorityclass --value=5', 'priorityclass.scheduling.k8s.io', id='priority-class'
        ),
    ],
)
def test_objects_without_namespaces_are_made_of_options(kubectl, namespace, command, shown):
    run = kubectl(f'{command} {namespace}-more')

    assert (run.code, run.out, run.err) == (0, f'{shown}/{namespace}-more created\n', '')


def test_contents_come_from_literals_and_files(kubectl, read, tmp_path):
    tmp_path.joinpath('text').write_text('hello')
    tmp_path.joinpath('binary').write_bytes(b'\xff\x00')

    kubectl(f'create configmap one --from-literal=a=1 --from-file={tmp_path}')
    kubectl(f'create secret generic one --from-literal=a=1 --from-file={tmp_path}')

    assert read('configmaps')['data'] == {'a': '1', 'text': 'hello'}
    assert read('configmaps')['binaryData'] == {'binary': '/wA='}
    assert read('secrets')['type'] == 'Opaque'
    assert {key: base64.b64decode(value) for key, value in read('secrets')['data'].items()} == {
        'a': b'1',
        'text': b'hello',
        'binary': b'\xff\x00',
    }


def test_deployment_made_of_options_is_complete(kubectl, read):
    kubectl('create deployment one --image=nginx:1 --replicas=3 --port=80')

    spec = read('deployments')['spec']
    assert spec['replicas'] == 3
    assert spec['strategy'] == {
        'type': 'RollingUpdate',
        'rollingUpdate': {'maxSurge': '25%', 'maxUnavailable': '25%'},
    }
    assert spec['template']['spec']['containers'] == [
        {
            'name': 'nginx',
            'image': 'nginx:1',
            'ports': [{'containerPort': 80, 'protocol': 'TCP'}],
            'resources': {},
            'imagePullPolicy': 'IfNotPresent',
            'terminationMessagePath': '/dev/termination-log',
            'terminationMessagePolicy': 'File',
        }
    ]


def test_job_is_made_of_a_cronjob(kubectl, read):
    kubectl('create cronjob one --image=busybox --schedule="0 0 * * *" -- date')

    run = kubectl('create job two --from=cronjob/one')

    assert run.out == 'job.batch/two created\n'
    owner = read('cronjobs')
    assert read('jobs', 'two')['metadata']['ownerReferences'] == [
        {
            'apiVersion': 'batch/v1',
            'kind': 'CronJob',
            'controller': True,
            'name': 'one',
            'uid': owner['metadata']['uid'],
        }
    ]


def test_pod_is_run(kubectl, read):
    run = kubectl(
        'run one --image=busybox --labels=x=y --env=A=1 --restart=Never --command -- sleep 1'
    )

    assert run.out == 'pod/one created\n'
    body = read('pods')
    assert body['metadata']['labels'] == {'x': 'y'}
    assert body['status'] == {'phase': 'Pending', 'qosClass': 'BestEffort'}
    assert body['spec']['restartPolicy'] == 'Never'
    assert body['spec']['containers'][0]['command'] == ['sleep', '1']
    assert body['spec']['containers'][0]['env'] == [{'name': 'A', 'value': '1'}]


def test_deployment_is_exposed_and_autoscaled(kubectl, make, read):
    make(kubectls.build_deployment())

    exposed = kubectl('expose deployment one --port=80 --target-port=8080')
    scaled = kubectl('autoscale deployment one --min=2 --max=5')

    assert exposed.out == 'service/one exposed\n'
    assert scaled.out == 'horizontalpodautoscaler.autoscaling/one autoscaled\n'
    assert read('services')['spec']['selector'] == {'app': 'one'}
    assert read('services')['spec']['ports'] == [
        {'port': 80, 'targetPort': 8080, 'protocol': 'TCP'}
    ]
    assert read('horizontalpodautoscalers')['spec']['scaleTargetRef'] == {
        'apiVersion': 'apps/v1',
        'kind': 'Deployment',
        'name': 'one',
    }


def test_pod_is_exposed_by_its_labels(kubectl, make, read):
    make(kubectls.build_pod(metadata={'labels': {'app': 'x'}}))

    assert kubectl('expose pod one --port=80 --name=two').out == 'service/two exposed\n'
    assert read('services', 'two')['spec']['selector'] == {'app': 'x'}


def test_tokens_are_issued(kubectl, namespace):
    kubectl('create serviceaccount robot')

    token = kubectl('create token robot --duration=1h').out.strip()

    who = kubectl(f'auth whoami --token={token} -o jsonpath={{.status.userInfo.username}}')
    assert who.out == f'system:serviceaccount:{namespace}:robot'


@pytest.mark.parametrize(
    'body, shown',
    [
        pytest.param(kubectls.build_widget(), f'widget.{GROUP}/one', id='custom'),
        pytest.param(kubectls.build_config(), 'configmap/one', id='configmap'),
        pytest.param(
            kubectls.build('Secret', stringData={'password': 'hunter2'}), 'secret/one', id='secret'
        ),
        pytest.param(kubectls.build_pod(), 'pod/one', id='pod'),
        pytest.param(kubectls.build_deployment(), 'deployment.apps/one', id='deployment'),
        pytest.param(kubectls.build_job(), 'job.batch/one', id='job'),
    ],
)
def test_objects_are_made_of_files(kubectl, body, shown):
    run = kubectl('create -f -', body)
    again = kubectl('create -f -', body)

    resource = (
        shown.replace('/one', '').replace('.', 's.', 1)
        if '.' in shown
        else shown.replace('/one', 's')
    )
    assert (run.code, run.out, run.err) == (0, f'{shown} created\n', '')
    assert again.err == (
        f'Error from server (AlreadyExists): error when creating "STDIN": '
        f'{resource} "one" already exists\n'
    )


def test_definition_is_created_and_usable_at_once(fresh_kubectl):
    crd = json.loads(json.dumps(kubectls.WIDGETS).replace('idget', 'odget').replace('"wd"', '"wo"'))
    body = {**kubectls.build_widget(), 'kind': 'Wodget'}

    assert fresh_kubectl('create -f -', crd).out == (
        f'customresourcedefinition.apiextensions.k8s.io/wodgets.{GROUP} created\n'
    )
    assert fresh_kubectl('create -f -', body).out == f'wodget.{GROUP}/one created\n'
    assert fresh_kubectl('get wo -o name').out == f'wodget.{GROUP}/one\n'

    assert fresh_kubectl(f'delete crd wodgets.{GROUP}').code == 0
    assert fresh_kubectl('get wodgets').err == (
        f'Error from server (NotFound): Unable to list "{GROUP}/v1, Resource=wodgets": '
        f'the server could not find the requested resource (get wodgets.{GROUP})\n'
    )


def test_wrong_definition_is_refused(kubectl):
    crd = json.loads(json.dumps(kubectls.WIDGETS).replace('"widgets"', '"gizmos"'))

    run = kubectl('create -f -', crd)

    assert run.code == 1
    assert run.err == (
        f'The CustomResourceDefinition "widgets.{GROUP}" is invalid: metadata.name: Invalid value: '
        f'"widgets.{GROUP}": must be spec.names.plural+"."+spec.group\n'
    )


def test_names_are_generated(kubectl, sandbox, namespace):
    body = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'generateName': 'gen-'}}

    run = kubectl('create -f - -o name', body)

    names = [found['metadata']['name'] for found in sandbox.list('configmaps', namespace)]
    assert run.out == f'configmap/{names[0]}\n'
    assert names[0].startswith('gen-')


def test_manifest_is_remembered_if_asked(kubectl, read):
    kubectl('create -f - --save-config', kubectls.build_config(x='1', y='2'))
    kubectl('apply -f -', kubectls.build_config(x='1'))

    assert read('configmaps')['data'] == {'x': '1'}


@pytest.mark.parametrize(
    'body, problem',
    [
        pytest.param(
            {'kind': 'ConfigMap'},
            'error: error validating "STDIN": error validating data: apiVersion not set; '
            'if you choose to ignore these errors, turn validation off with --validate=false',
            id='no-version',
        ),
        pytest.param(
            {'kind': 'ConfigMap', 'apiVersion': 'v1'},
            'The ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
            id='no-name',
        ),
        pytest.param(
            kubectls.build_config('a_b'),
            'The ConfigMap "a_b" is invalid: metadata.name: Invalid value: "a_b": a lowercase RFC 1123 subdomain '
            "must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
            "an alphanumeric character (e.g. 'example.com', regex used for validation is "
            r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            id='wrong-name',
        ),
        pytest.param(
            kubectls.build_config(a=1),
            'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be '
            'handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data '
            'of type string',
            id='wrong-type',
        ),
        pytest.param(
            kubectls.build_widget(size='big'),
            'The Widget "one" is invalid: spec.size: Invalid value: "string": spec.size in body must be '
            'of type integer: "string"',
            id='wrong-type-of-custom',
        ),
        pytest.param(
            kubectls.build('Widget', api_version=f'{GROUP}/v1'),
            'The Widget "one" is invalid: spec: Required value',
            id='no-spec',
        ),
    ],
)
def test_malformed_manifests_are_refused(kubectl, body, problem):
    run = kubectl('create -f -', body)

    assert (run.code, run.out, run.err) == (1, '', f'{problem}\n')


def test_nothing_is_created_in_absent_namespaces(kubectl):
    made = kubectl('create configmap one -n no-such-namespace')
    applied = kubectl('apply -f - -n no-such-namespace', kubectls.build_config())

    assert (
        made.err == 'error: failed to create configmap: namespaces "no-such-namespace" not found\n'
    )
    assert applied.err == (
        'Error from server (NotFound): error when creating "STDIN": '
        'namespaces "no-such-namespace" not found\n'
    )


def test_objects_are_created_by_raw_requests(kubectl, namespace, read, tmp_path):
    path = tmp_path / 'one.json'
    path.write_text(json.dumps(kubectls.build_config(x='1')))

    made = kubectl(f'create --raw /api/v1/namespaces/{namespace}/configmaps -f {path}')
    replaced = kubectl(f'replace --raw /api/v1/namespaces/{namespace}/configmaps/one -f {path}')
    deleted = kubectl(f'delete --raw /api/v1/namespaces/{namespace}/configmaps/one')

    assert json.loads(made.out)['data'] == {'x': '1'}
    assert json.loads(replaced.out)['data'] == {'x': '1'}
    assert json.loads(deleted.out)['status'] == 'Success'
