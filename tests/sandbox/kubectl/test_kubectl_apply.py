"""
kubectl apply: three-way merges on the client, and the fields' owners on the server.
"""

import json

import kubectls
import pytest
import yaml
from kubectls import GROUP

pytestmark = pytest.mark.slow

LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

OBJECTS = [
    pytest.param(kubectls.build_widget(), f'widget.{GROUP}/one', id='custom'),
    pytest.param(kubectls.build_config(x='1'), 'configmap/one', id='configmap'),
    pytest.param(kubectls.build('Secret', data={'password': 'MQ=='}), 'secret/one', id='secret'),
    pytest.param(kubectls.build_pod(), 'pod/one', id='pod'),
    pytest.param(kubectls.build_deployment(), 'deployment.apps/one', id='deployment'),
    pytest.param(kubectls.build_job(), 'job.batch/one', id='job'),
]


@pytest.mark.parametrize('body, shown', OBJECTS)
def test_objects_are_created_changed_and_left_unchanged(kubectl, body, shown):
    changed = {**body, 'metadata': {'name': 'one', 'labels': {'changed': 'yes'}}}

    assert kubectl('apply -f -', body).out == f'{shown} created\n'
    assert kubectl('apply -f -', body).out == f'{shown} unchanged\n'
    assert kubectl('apply -f -', changed).out == f'{shown} configured\n'


@pytest.mark.parametrize('body, shown', OBJECTS)
def test_objects_are_applied_by_the_server(kubectl, read, body, shown):
    assert kubectl('apply --server-side -f -', body).out == f'{shown} serverside-applied\n'
    version = read(shown.split('/')[0])['metadata']['resourceVersion']
    assert kubectl('apply --server-side -f -', body).out == f'{shown} serverside-applied\n'
    assert read(shown.split('/')[0])['metadata']['resourceVersion'] == version


def test_namespace_is_applied(kubectl, sandbox, namespace):
    body = kubectls.build('Namespace', f'{namespace}-more', metadata={'labels': {'a': 'b'}})

    assert kubectl('apply -f -', body).out == f'namespace/{namespace}-more created\n'
    assert kubectl('apply -f -', body).out == f'namespace/{namespace}-more unchanged\n'
    assert sandbox.get('namespaces', f'{namespace}-more')['status'] == {'phase': 'Active'}


def test_custom_object_is_brought_to_its_manifest_but_what_others_have_added_is_kept(
    kubectl, sandbox, namespace, read
):
    parts = [{'name': 'a', 'count': 1}, {'name': 'b', 'count': 2}]
    kubectl(
        'apply -f -',
        kubectls.build_widget(metadata={'labels': {'x': '1', 'y': '2'}}, parts=parts, color='blue'),
    )
    sandbox.patch(
        'widgets',
        'one',
        {'metadata': {'labels': {'z': '3'}}, 'spec': {'extras': {'e': 1}}},
        namespace,
    )

    changed = kubectls.build_widget(
        metadata={'labels': {'x': '9'}}, size=6, parts=[{'name': 'b', 'count': 3}]
    )
    run = kubectl('apply -f -', changed)

    assert (run.code, run.out, run.err) == (0, f'widget.{GROUP}/one configured\n', '')
    body = read('widgets')
    assert body['metadata']['labels'] == {'x': '9', 'z': '3'}
    assert body['metadata']['generation'] == 3
    assert body['spec'] == {
        'size': 6,
        'color': 'red',
        'replicas': 1,
        'parts': [{'name': 'b', 'count': 3}],
        'extras': {'e': 1},
    }
    assert json.loads(body['metadata']['annotations'][LAST_APPLIED])['spec'] == changed['spec']


def test_deployment_is_merged_by_the_keys_of_its_lists(kubectl, sandbox, namespace, read):
    env = [{'name': 'A', 'value': '1'}, {'name': 'B', 'value': '2'}]
    web = {'name': 'web', 'image': 'nginx:1', 'env': env}
    kubectl(
        'apply -f -',
        kubectls.build_deployment('one', web, {'name': 'side', 'image': 'side:1'}, replicas=2),
    )
    injected = {
        'spec': {
            'template': {
                'spec': {
                    'containers': [
                        {'name': 'injected', 'image': 'injected:1'},
                        {'name': 'web', 'env': [{'name': 'D', 'value': '4'}]},
                    ]
                }
            }
        }
    }
    sandbox.patch('deployments', 'one', injected, namespace, type='strategic')

    web = {
        'name': 'web',
        'image': 'nginx:2',
        'env': [{'name': 'B', 'value': '3'}, {'name': 'C', 'value': '4'}],
    }
    run = kubectl('apply -f -', kubectls.build_deployment('one', web))

    assert (run.code, run.out, run.err) == (0, 'deployment.apps/one configured\n', '')
    spec = read('deployments')['spec']
    containers = {
        container['name']: container for container in spec['template']['spec']['containers']
    }
    assert spec['replicas'] == 1
    assert set(containers) == {'web', 'injected'}
    assert containers['web']['image'] == 'nginx:2'
    assert {item['name']: item['value'] for item in containers['web']['env']} == {
        'B': '3',
        'C': '4',
        'D': '4',
    }


def test_values_removed_from_the_manifest_are_removed_from_the_object(kubectl, read):
    secret = kubectls.build('Secret', data={'p': 'MQ==', 'q': 'Mg=='})
    kubectl('apply -f -', kubectls.build_config(x='1', y='2'), secret)

    run = kubectl(
        'apply -f -',
        kubectls.build_config(x='1', z='3'),
        kubectls.build('Secret', data={'p': 'Mw=='}),
    )

    assert run.out == 'configmap/one configured\nsecret/one configured\n'
    assert read('configmaps')['data'] == {'x': '1', 'z': '3'}
    assert read('secrets')['data'] == {'p': 'Mw=='}


def test_object_created_otherwise_is_adopted_with_a_warning(kubectl, make, read):
    make(kubectls.build_config(x='1', y='2'))

    run = kubectl('apply -f -', kubectls.build_config(x='2'))

    assert run.out == 'configmap/one configured\n'
    assert run.err.startswith(
        'Warning: resource configmaps/one is missing the '
        f'{LAST_APPLIED} annotation which is required by kubectl apply.'
    )
    assert read('configmaps')['data'] == {'x': '2', 'y': '2'}


def test_files_and_directories_are_applied(kubectl, tmp_path):
    objects = [kubectls.build_config('a'), kubectls.build_config('b')]
    tmp_path.joinpath('many.yaml').write_text(yaml.safe_dump_all(objects))
    tmp_path.joinpath('one.json').write_text(json.dumps(kubectls.build_widget('c')))

    run = kubectl(f'apply -f {tmp_path}')

    assert run.out == f'configmap/a created\nconfigmap/b created\nwidget.{GROUP}/c created\n'


def test_last_applied_manifest_is_shown(kubectl, namespace):
    kubectl('apply -f -', kubectls.build_config(x='1'))

    run = kubectl('apply view-last-applied configmap/one')

    assert yaml.safe_load(run.out) == kubectls.build_config(
        metadata={'namespace': namespace, 'annotations': {}}, x='1'
    )


def test_server_keeps_the_fields_of_other_managers(kubectl, read):
    ours = kubectls.build_widget(parts=[{'name': 'a', 'count': 1}, {'name': 'b'}])
    theirs = kubectls.build_widget(parts=[{'name': 'b'}, {'name': 'c'}])
    kubectl('apply --server-side -f -', ours)
    kubectl('apply --server-side -f - --field-manager=other', theirs)

    kubectl('apply --server-side -f -', theirs)
    kubectl('apply --server-side -f -', kubectls.build_widget())

    body = read('widgets')
    assert body['spec']['parts'] == [{'name': 'b'}, {'name': 'c'}]
    managed = {
        (entry['manager'], entry['operation']) for entry in body['metadata']['managedFields']
    }
    # Their order depends on the seconds.
    assert managed == {
        ('kubectl', 'Apply'),
        ('other', 'Apply'),
    }


@pytest.mark.parametrize('options', ['', '--dry-run=server'])
def test_conflicts_between_managers_are_explained(kubectl, read, options):
    kubectl('apply --server-side -f -', kubectls.build_widget(size=5))

    run = kubectl(
        f'apply --server-side -f - --field-manager=other {options}', kubectls.build_widget(size=6)
    )

    assert run.code == 1
    assert run.err.startswith(
        'error: Apply failed with 1 conflict: conflict with "kubectl": .spec.size\n'
        'Please review the fields above--they currently have other managers.'
    )
    assert read('widgets')['spec']['size'] == 5


def test_conflicts_with_several_managers_are_listed(kubectl):
    kubectl('apply --server-side -f -', kubectls.build_deployment(replicas=2))
    kubectl('set image deployment/one web=nginx:2')
    kubectl('scale deployment/one --replicas=3')

    run = kubectl('apply --server-side -f -', kubectls.build_deployment(replicas=2))

    assert run.code == 1
    assert run.err.startswith(
        'error: Apply failed with 2 conflicts: conflicts with "kubectl" with subresource "scale" using apps/v1:\n'
        '- .spec.replicas\n'
        'conflicts with "kubectl-set" using apps/v1:\n'
        '- .spec.template.spec.containers[name="web"].image\n'
    )


def test_conflicts_are_won_by_force(kubectl, read):
    kubectl('apply --server-side -f -', kubectls.build_widget(size=5))

    run = kubectl(
        'apply --server-side --force-conflicts -f - --field-manager=other',
        kubectls.build_widget(size=6),
    )

    assert (run.code, run.err) == (0, '')
    assert read('widgets')['spec']['size'] == 6


def test_server_takes_over_from_the_client(kubectl, read):
    kubectl('apply -f -', kubectls.build_config(x='1', y='2'))

    run = kubectl('apply --server-side -f -', kubectls.build_config(x='3'))

    assert (run.code, run.err) == (0, '')
    assert read('configmaps')['data'] == {'x': '3'}


@pytest.mark.parametrize(
    'command, suffix',
    [
        pytest.param('apply', 'created', id='client-side'),
        pytest.param('apply --server-side', 'serverside-applied', id='server-side'),
        pytest.param('create', 'created', id='creation'),
    ],
)
def test_dry_run_changes_nothing(kubectl, sandbox, namespace, command, suffix):
    run = kubectl(f'{command} -f - --dry-run=server', kubectls.build_widget())
    shown = kubectl(
        f'{command} -f - --dry-run=server -o jsonpath={{.spec}}', kubectls.build_widget()
    )

    assert run.out == f'widget.{GROUP}/one {suffix} (server dry run)\n'
    assert json.loads(shown.out) == {'size': 5, 'color': 'red', 'replicas': 1}
    assert not sandbox.list('widgets', namespace)


def test_dry_run_of_a_change_shows_it(kubectl, read):
    kubectl('apply -f -', kubectls.build_config(x='1'))

    run = kubectl('apply -f - --dry-run=server -o jsonpath={.data}', kubectls.build_config(x='2'))

    assert run.out == '{"x":"2"}'
    assert read('configmaps')['data'] == {'x': '1'}


@pytest.mark.parametrize('options', ['', '--server-side'])
def test_differences_are_shown(kubectl, read, options):
    kubectl(f'apply {options} -f -', kubectls.build_widget())

    same = kubectl(f'diff {options} -f -', kubectls.build_widget())
    run = kubectl(f'diff {options} -f -', kubectls.build_widget(size=6))

    assert (same.code, same.out) == (0, '')
    assert run.code == 1
    assert [line for line in run.out.splitlines() if line.startswith(('- ', '+ '))] == [
        '-  generation: 1',
        '+  generation: 2',
        '-  size: 5',
        '+  size: 6',
    ]
    assert read('widgets')['spec']['size'] == 5


@pytest.mark.parametrize('command', ['create', 'apply'])
@pytest.mark.parametrize(
    'body, problem',
    [
        pytest.param(
            kubectls.build_widget(foo=1),
            'Widget in version "v1" cannot be handled as a Widget: '
            'strict decoding error: unknown field "spec.foo"',
            id='custom',
        ),
        pytest.param(
            kubectls.build_pod(containers=[{'name': 'main', 'imagee': 'x'}]),
            'Pod in version "v1" cannot be handled as a Pod: '
            'strict decoding error: unknown field "spec.containers[0].imagee"',
            id='built-in',
        ),
    ],
)
def test_unknown_fields_are_refused(kubectl, command, body, problem):
    run = kubectl(f'{command} -f -', body)

    assert run.code == 1
    assert run.err == f'Error from server (BadRequest): error when creating "STDIN": {problem}\n'


def test_unknown_fields_are_dropped_with_a_warning_if_asked(kubectl, read):
    run = kubectl('apply -f - --validate=warn', kubectls.build_widget(foo=1))

    assert run.out == f'widget.{GROUP}/one created\n'
    assert run.err == 'Warning: unknown field "spec.foo"\n'
    assert 'foo' not in read('widgets')['spec']


def test_unknown_fields_are_dropped_silently_if_asked(kubectl, read):
    run = kubectl('apply -f - --validate=false', kubectls.build_widget(foo=1))

    assert (run.out, run.err) == (f'widget.{GROUP}/one created\n', '')
    assert 'foo' not in read('widgets')['spec']


def test_unknown_fields_are_not_applied_by_the_server(kubectl, namespace):
    run = kubectl('apply --server-side -f -', kubectls.build_widget(foo=1))

    assert run.code == 1
    assert run.err == (
        f'Error from server: failed to create typed patch object ({namespace}/one; {GROUP}/v1, '
        'Kind=Widget): .spec.foo: field not declared in schema\n'
    )


@pytest.mark.parametrize(
    'body, problems',
    [
        pytest.param(
            kubectls.build_widget(size=500, color='pink', parts=[{'count': 'x'}]),
            {
                '* spec.size: Invalid value: 500: spec.size in body should be less than or equal to 100',
                '* spec.color: Unsupported value: "pink": supported values: "red", "green", "blue"',
                '* spec.parts[0].name: Required value',
                '* spec.parts[0].count: Invalid value: "string": spec.parts[0].count in body must be of type integer: "string"',
            },
            id='custom',
        ),
        pytest.param(
            kubectls.build_pod(containers=[{'name': 'main'}], restartPolicy='Maybe'),
            {
                '* spec.containers[0].image: Required value',
                '* spec.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"',
            },
            id='built-in',
        ),
    ],
)
def test_all_invalid_fields_are_listed(kubectl, body, problems):
    run = kubectl('apply -f -', body)

    assert run.code == 1
    headline, *lines = run.err.splitlines()
    assert headline == f'The {body["kind"]} "one" is invalid: '
    assert set(lines) == problems


@pytest.mark.parametrize('command', ['apply -f -', 'apply --server-side -f -', 'create -f -'])
@pytest.mark.parametrize(
    'kind, api_version',
    [
        pytest.param('Gizmo', 'no.such.group/v1', id='group'),
        pytest.param('Widget', f'{GROUP}/v2', id='version'),
        pytest.param('Gizmo', f'{GROUP}/v1', id='kind'),
        pytest.param('Podd', 'v1', id='built-in-kind'),
    ],
)
def test_unknown_kinds_are_told(kubectl, command, kind, api_version):
    run = kubectl(command, kubectls.build(kind, 'one', api_version))

    assert run.code == 1
    assert run.err == (
        'error: resource mapping not found for name: "one" namespace: "" from "STDIN": '
        f'no matches for kind "{kind}" in version "{api_version}"\nensure CRDs are installed first\n'
    )


def test_generated_names_cannot_be_applied(kubectl):
    run = kubectl(
        'apply -f -',
        {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'generateName': 'gen-'}},
    )

    assert (run.code, run.err) == (1, 'error: from gen-: cannot use generate name with apply\n')
