"""
kubectl get: all forms of output, and all ways to select.
"""

import json

import kubectls
import pytest
import yaml
from kubectls import GROUP

pytestmark = pytest.mark.slow


@pytest.fixture
def widgets(make):
    """Three widgets of different sizes, colors and labels."""
    make(
        kubectls.build_widget('a', metadata={'labels': {'app': 'x'}}, size=30),
        kubectls.build_widget('b', metadata={'labels': {'app': 'y'}}, size=10, color='blue'),
        kubectls.build_widget('c', size=20),
    )


@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param(
            '',
            [['NAME', 'SIZE', 'AGE'], ['a', '30', 'AGE'], ['b', '10', 'AGE'], ['c', '20', 'AGE']],
            id='plain',
        ),
        pytest.param(
            '-o wide',
            [
                ['NAME', 'SIZE', 'COLOR', 'AGE'],
                ['a', '30', 'red', 'AGE'],
                ['b', '10', 'blue', 'AGE'],
                ['c', '20', 'red', 'AGE'],
            ],
            id='wide',
        ),
        pytest.param(
            '--no-headers',
            [['a', '30', 'AGE'], ['b', '10', 'AGE'], ['c', '20', 'AGE']],
            id='no-headers',
        ),
        pytest.param(
            '--show-labels',
            [
                ['NAME', 'SIZE', 'AGE', 'LABELS'],
                ['a', '30', 'AGE', 'app=x'],
                ['b', '10', 'AGE', 'app=y'],
                ['c', '20', 'AGE', '<none>'],
            ],
            id='labels',
        ),
        pytest.param(
            '-L app',
            [
                ['NAME', 'SIZE', 'AGE', 'APP'],
                ['a', '30', 'AGE', 'x'],
                ['b', '10', 'AGE', 'y'],
                ['c', '20', 'AGE'],
            ],
            id='label-columns',
        ),
        pytest.param(
            '--show-kind',
            [
                ['NAME', 'SIZE', 'AGE'],
                *(
                    [f'widget.{GROUP}/{name}', size, 'AGE']
                    for name, size in [('a', '30'), ('b', '10'), ('c', '20')]
                ),
            ],
            id='kinds',
        ),
        pytest.param(
            '-o name',
            [[f'widget.{GROUP}/a'], [f'widget.{GROUP}/b'], [f'widget.{GROUP}/c']],
            id='name',
        ),
        pytest.param(
            '-o custom-columns=WHO:.metadata.name,COLOR:.spec.color,NONE:.spec.none',
            [
                ['WHO', 'COLOR', 'NONE'],
                ['a', 'red', '<none>'],
                ['b', 'blue', '<none>'],
                ['c', 'red', '<none>'],
            ],
            id='custom-columns',
        ),
        pytest.param(
            '-o jsonpath=\'{range .items[*]}{.metadata.name}={.spec.size}{"\\n"}{end}\'',
            [['a=30'], ['b=10'], ['c=20']],
            id='jsonpath',
        ),
        pytest.param(
            "-o go-template='{{range .items}}{{.spec.size}} {{end}}'",
            [['30 10 20']],
            id='go-template',
        ),
        pytest.param(
            '--sort-by=.spec.size',
            [['NAME', 'SIZE', 'AGE'], ['b', '10', 'AGE'], ['c', '20', 'AGE'], ['a', '30', 'AGE']],
            id='sorted',
        ),
        pytest.param('-l app=x', [['NAME', 'SIZE', 'AGE'], ['a', '30', 'AGE']], id='label'),
        pytest.param("-l 'app in (y,z)' -o name", [[f'widget.{GROUP}/b']], id='label-set'),
        pytest.param("-l '!app' -o name", [[f'widget.{GROUP}/c']], id='no-label'),
        pytest.param(
            '-l app!=x -o name', [[f'widget.{GROUP}/b'], [f'widget.{GROUP}/c']], id='other-label'
        ),
        pytest.param(
            '--field-selector=metadata.name=b -o name', [[f'widget.{GROUP}/b']], id='name-field'
        ),
        pytest.param(
            '--field-selector=spec.color=blue -o name', [[f'widget.{GROUP}/b']], id='custom-field'
        ),
        pytest.param(
            '--field-selector=spec.color!=blue -o name',
            [[f'widget.{GROUP}/a'], [f'widget.{GROUP}/c']],
            id='other-custom-field',
        ),
        pytest.param('a c -o name', [[f'widget.{GROUP}/a'], [f'widget.{GROUP}/c']], id='by-names'),
        pytest.param(
            'b --subresource=scale',
            [['NAME', 'DESIRED', 'AVAILABLE', 'AGE'], ['b', '1', '0', 'AGE']],
            id='scale',
        ),
        pytest.param(
            'b --subresource=status', [['NAME', 'SIZE', 'AGE'], ['b', '10', 'AGE']], id='status'
        ),
    ],
)
def test_custom_objects_are_shown(kubectl, widgets, options, expected):
    run = kubectl(f'get widgets {options}')

    assert (run.code, run.err) == (0, '')
    assert run.rows == expected


@pytest.mark.parametrize(
    'name',
    ['widgets', 'widget', 'wd', 'gadgets', f'widgets.{GROUP}', f'widgets.v1.{GROUP}', 'WIDGETS'],
)
def test_resources_have_many_names(kubectl, make, name):
    make(kubectls.build_widget())

    assert kubectl(f'get {name} -o name').out == f'widget.{GROUP}/one\n'


@pytest.mark.parametrize(
    'body, resource, expected',
    [
        pytest.param(
            kubectls.build_config(a='1', b='2'),
            'configmap',
            [['NAME', 'DATA', 'AGE'], ['one', '2', 'AGE']],
            id='configmap',
        ),
        pytest.param(
            kubectls.build('Secret', stringData={'a': 'b'}),
            'secret',
            [['NAME', 'TYPE', 'DATA', 'AGE'], ['one', 'Opaque', '1', 'AGE']],
            id='secret',
        ),
        pytest.param(
            kubectls.build_pod(),
            'pod',
            [
                [
                    'NAME',
                    'READY',
                    'STATUS',
                    'RESTARTS',
                    'AGE',
                    'IP',
                    'NODE',
                    'NOMINATED NODE',
                    'READINESS GATES',
                ],
                ['one', '0/1', 'Pending', '0', 'AGE', '<none>', '<none>', '<none>', '<none>'],
            ],
            id='pod',
        ),
        pytest.param(
            kubectls.build_deployment(replicas=3),
            'deployment',
            [
                [
                    'NAME',
                    'READY',
                    'UP-TO-DATE',
                    'AVAILABLE',
                    'AGE',
                    'CONTAINERS',
                    'IMAGES',
                    'SELECTOR',
                ],
                ['one', '0/3', '0', '0', 'AGE', 'web', 'nginx:1', 'app=one'],
            ],
            id='deployment',
        ),
    ],
)
def test_built_in_objects_are_shown(kubectl, make, body, resource, expected):
    make(body)

    assert kubectl(f'get {resource} one -o wide').rows == expected


def test_job_is_shown(kubectl, make):
    make(kubectls.build_job(completions=2, parallelism=3))

    assert kubectl('get jobs').rows == [
        ['NAME', 'STATUS', 'COMPLETIONS', 'DURATION', 'AGE'],
        ['one', 'Running', '0/2', 'AGE'],
    ]


def test_namespace_is_shown(kubectl, namespace):
    assert kubectl(f'get namespace {namespace}').rows == [
        ['NAME', 'STATUS', 'AGE'],
        [namespace, 'Active', 'AGE'],
    ]


@pytest.mark.parametrize(
    'body, resource',
    [
        pytest.param(
            kubectls.build_widget(extras={'any': [1, {'a': None}]}), 'widgets', id='custom'
        ),
        pytest.param(kubectls.build_config(text='line\nline'), 'configmaps', id='configmap'),
        pytest.param(kubectls.build_deployment(), 'deployments', id='deployment'),
    ],
)
@pytest.mark.parametrize('form, parse', [('yaml', yaml.safe_load), ('json', json.loads)])
def test_whole_objects_are_shown(kubectl, make, body, resource, form, parse):
    made = make(body)

    with_fields = parse(kubectl(f'get {resource} one -o {form} --show-managed-fields').out)
    shown = parse(kubectl(f'get {resource} one -o {form}').out)
    listed = parse(kubectl(f'get {resource} -o {form} --field-selector=metadata.name=one').out)

    assert with_fields == made
    assert shown == {**made, 'metadata': {key: made['metadata'][key] for key in shown['metadata']}}
    assert set(made['metadata']) - set(shown['metadata']) == {'managedFields'}
    assert (listed['kind'], listed['items']) == ('List', [shown])


def test_scale_is_shown(kubectl, make):
    made = make(kubectls.build_widget(replicas=3))

    shown = yaml.safe_load(kubectl('get widget one --subresource=scale -o yaml').out)

    keys = ('name', 'namespace', 'uid', 'resourceVersion', 'creationTimestamp')
    assert shown == {
        'apiVersion': 'autoscaling/v1',
        'kind': 'Scale',
        'metadata': {key: made['metadata'][key] for key in keys},
        'spec': {'replicas': 3},
        'status': {'replicas': 0},
    }


def test_different_resources_are_shown_at_once(kubectl, make):
    make(
        kubectls.build_config(),
        kubectls.build_widget(),
        kubectls.build_pod(),
        kubectls.build_deployment(),
    )

    assert kubectl('get configmaps,widgets').rows == [
        ['NAME', 'DATA', 'AGE'],
        ['configmap/kube-root-ca.crt', '1', 'AGE'],
        ['configmap/one', '0', 'AGE'],
        [''],
        ['NAME', 'SIZE', 'AGE'],
        [f'widget.{GROUP}/one', '5', 'AGE'],
    ]
    assert kubectl('get all -o name').out == 'pod/one\ndeployment.apps/one\n'


def test_all_namespaces_are_shown(kubectl, sandbox, namespace):
    other = f'more-{namespace}'
    sandbox.apply(
        kubectls.build('Namespace', other),
        *(
            kubectls.build_config(metadata={'namespace': each, 'labels': {'of': namespace}})
            for each in (namespace, other)
        ),
    )

    assert kubectl(f'get configmaps -A -l of={namespace}').rows == [
        ['NAMESPACE', 'NAME', 'DATA', 'AGE'],
        [namespace, 'one', '0', 'AGE'],
        [other, 'one', '0', 'AGE'],
    ]
    assert kubectl(
        f'get configmaps -A --field-selector=metadata.namespace={other} --no-headers'
    ).rows == [[other, 'kube-root-ca.crt', '1', 'AGE'], [other, 'one', '0', 'AGE']]


def test_lists_are_read_by_chunks(kubectl, sandbox, namespace, make):
    make(*(kubectls.build('Secret', name) for name in 'abcde'))

    run = kubectl('get secrets --chunk-size=2 -o name')

    path = f'/api/v1/namespaces/{namespace}/secrets'
    assert run.out == ''.join(f'secret/{name}\n' for name in 'abcde')
    assert len(sandbox.requests.select(verb='list', path=path)) == 3


@pytest.mark.parametrize(
    'selector, expected',
    [
        pytest.param('status.phase=Pending', ['one'], id='phase'),
        pytest.param('status.phase!=Pending', [], id='other-phase'),
        pytest.param('spec.nodeName=', ['one'], id='not-assigned'),
        pytest.param('spec.restartPolicy=Always,metadata.name=one', ['one'], id='two'),
    ],
)
def test_pods_are_selected_by_fields(kubectl, make, selector, expected):
    make(kubectls.build_pod())

    assert kubectl(f'get pods --field-selector={selector} -o name').out == ''.join(
        f'pod/{name}\n' for name in expected
    )


@pytest.mark.parametrize(
    'command, problem',
    [
        pytest.param(
            'get widget none',
            f'Error from server (NotFound): widgets.{GROUP} "none" not found',
            id='object',
        ),
        pytest.param(
            'get pod none',
            'Error from server (NotFound): pods "none" not found',
            id='built-in-object',
        ),
        pytest.param(
            'get deploy/none pod/none',
            'Error from server (NotFound): deployments.apps "none" not found\n'
            'Error from server (NotFound): pods "none" not found',
            id='objects',
        ),
        pytest.param(
            'get gizmos', 'error: the server doesn\'t have a resource type "gizmos"', id='resource'
        ),
        pytest.param(
            'get widgets --field-selector=spec.size=5',
            f'Error from server (BadRequest): Unable to find "{GROUP}/v1, Resource=widgets" that match label '
            'selector "", field selector "spec.size=5": field label not supported: spec.size',
            id='field',
        ),
        pytest.param(
            'get pods --field-selector=x=y',
            'Error from server (BadRequest): Unable to find "/v1, Resource=pods" that match label '
            'selector "", field selector "x=y": field label not supported: x',
            id='built-in-field',
        ),
        pytest.param(
            "get pods -l 'a b'",
            'Error from server (BadRequest): Unable to find "/v1, Resource=pods" that match label selector '
            '"a b", field selector "": unable to parse requirement: found \'b\', expected: '
            'in, notin, =, ==, !=, gt, lt',
            id='label',
        ),
        pytest.param(
            'get widget none --subresource=nope',
            f'Error from server (NotFound): widgets.{GROUP} "none" not found',
            id='subresource',
        ),
        pytest.param(
            'get pod none --subresource=nope',
            'Error from server (NotFound): the server could not find the requested resource',
            id='built-in-subresource',
        ),
        pytest.param(
            'get --raw /api/v1/namespaces/none',
            'Error from server (NotFound): namespaces "none" not found',
            id='raw-object',
        ),
        pytest.param(
            'get --raw /none',
            'Error from server (NotFound): the server could not find the requested resource',
            id='raw-path',
        ),
    ],
)
def test_what_is_not_there_is_not_found(kubectl, command, problem):
    run = kubectl(command)

    assert (run.code, run.out, run.err) == (1, '', f'{problem}\n')


def test_absence_of_objects_is_told(kubectl, namespace):
    run = kubectl('get widgets')
    ignored = kubectl('get widget none --ignore-not-found')

    assert (run.code, run.out, run.err) == (
        0,
        '',
        f'No resources found in {namespace} namespace.\n',
    )
    assert (ignored.code, ignored.out, ignored.err) == (0, '', '')
