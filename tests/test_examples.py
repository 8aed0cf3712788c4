"""
The examples do what they say: each is run as users run it, usually by ``kopf run --sandbox``, in
its own process.
"""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import kubernetes
import pytest

import kopf
import kopf.testing

EXAMPLES = pathlib.Path(kopf.__file__).parent.parent / 'examples'
COMMON = [EXAMPLES / 'crd.yaml', EXAMPLES / 'obj.yaml']
NAME = 'kopf-example-1'

pytestmark = pytest.mark.slow


class Example:
    """A running example: what it says, and the cluster it is in."""

    def __init__(self, process):
        self.process = process
        self.said = ''

    def wait_until_says(self, *texts):
        """Read what it says, until it has said all of these since the start."""
        while not all(text in self.said for text in texts):
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line

    def stop(self):
        """Interrupt it, as by Ctrl-C; check that it ends properly."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=20)
        self.said += rest
        assert self.process.returncode == 0, self.said

    @property
    def kubeconfig(self):
        return re.search(r'export KUBECONFIG=(\S+)', self.said)[1]

    def connect(self):
        return kubernetes.config.new_client_from_config(self.kubeconfig)

    @property
    def core(self):
        return kubernetes.client.CoreV1Api(self.connect())

    def get(self):
        return self._call('get')

    def wait_until_exists(self, timeout=30):
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.get()
            except kubernetes.client.ApiException as error:
                assert error.status == 404
                assert time.monotonic() < deadline
            time.sleep(0.1)

    def patch(self, metadata=None, **spec):
        return self._call('patch', body={'spec': spec, 'metadata': metadata or {}})

    def delete(self):
        return self._call('delete')

    def create(self, name, **metadata):
        body = {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'metadata': {'name': name, **metadata},
        }
        api = kubernetes.client.CustomObjectsApi(self.connect())
        return api.create_namespaced_custom_object(
            'kopf.dev', 'v1', 'default', 'kopfexamples', body
        )

    def _call(self, verb, **kwargs):
        api = kubernetes.client.CustomObjectsApi(self.connect())
        call = getattr(api, f'{verb}_namespaced_custom_object')
        return call('kopf.dev', 'v1', 'default', 'kopfexamples', NAME, **kwargs)


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as stack:

        def start(name, manifests=COMMON, args=(), **env):
            args = args or ['--sandbox', *(arg for path in manifests for arg in ('--apply', path))]
            process = stack.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        '-B',
                        '-m',
                        'kopf',
                        'run',
                        *args,
                        EXAMPLES / name / 'example.py',
                    ],
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=tmp_path,
                    env={**os.environ, 'PYTHONUNBUFFERED': '1', **env},
                )
            )
            stack.callback(process.kill)
            return Example(process)

        yield start


def test_all_examples_are_listed_and_explained():
    names = {path.parent.name for path in EXAMPLES.glob('*/example.py')}
    listed = re.findall(
        r'^\| \[(.+?)\]\((.+?)\) ', (EXAMPLES / 'README.md').read_text(), re.MULTILINE
    )

    assert {name for name, _ in listed} == {target for _, target in listed} == names
    assert all((EXAMPLES / name / 'README.md').exists() for name in names)


@pytest.mark.parametrize('path', sorted(EXAMPLES.glob('*/*.py')), ids=lambda path: path.parent.name)
def test_examples_with_a_client_library_say_how_to_install_it(path):
    libraries = {'kubernetes', 'kubernetes_asyncio', 'pykube', 'kr8s'}
    imported = set(re.findall(r'^(?:import|from) (\w+)', path.read_text(), re.MULTILINE))
    own, common = (path.parent / 'README.md').read_text(), (EXAMPLES / 'README.md').read_text()
    introduction = common.partition('\n|')[0]

    if imported & libraries:
        assert "pip install '../..[dev,full-auth]'" in own
        assert "pip install '.[dev,full-auth]'" in introduction
        assert f'[{path.parent.name}]({path.parent.name})' in introduction
    else:
        assert 'full-auth' not in own or path.parent.name == 'walkthrough'


def test_minimal_operator_reacts_to_creation(start):
    example = start('01-minimal')
    example.wait_until_says(f'Hello, {NAME}! You are here for 1m.', "'create_fn' succeeded")

    example.stop()

    assert 'Traceback' not in example.said


def test_children_live_and_die_with_their_parents(start):
    example = start('02-children')
    example.wait_until_says("'create_pod' succeeded")
    (pod,) = example.core.list_namespaced_pod('default').items

    assert [owner.uid for owner in pod.metadata.owner_references] == [
        example.get()['metadata']['uid']
    ]

    example.delete()

    events = kubernetes.watch.Watch().stream(
        example.core.list_namespaced_pod,
        'default',
        timeout_seconds=10,
        resource_version=pod.metadata.resource_version,
    )
    deleted = next(event['object'] for event in events if event['type'] == 'DELETED')
    assert deleted.metadata.name == pod.metadata.name
    example.stop()


def test_exceptions_are_retried_or_not(start):
    example = start('03-exceptions')

    example.wait_until_says(
        "'succeeds_at_last' failed temporarily: Not yet.",
        "'succeeds_at_last' succeeded",
        "'recovers_from_anything' succeeded",
        "'knows_that_it_is_hopeless' failed permanently: There is no way to do this.",
    )

    example.stop()
    counts = {
        name: len(re.findall(f"'{name}' failed", example.said))
        for name in (
            'succeeds_at_last',
            'recovers_from_anything',
            'knows_that_it_is_hopeless',
            'gives_up_after_a_few_attempts',
            'treats_all_errors_as_final',
            'does_not_care_of_errors',
        )
    }
    assert counts == {
        'succeeds_at_last': 2,
        'recovers_from_anything': 1,
        'knows_that_it_is_hopeless': 1,
        'gives_up_after_a_few_attempts': 3,
        'treats_all_errors_as_final': 1,
        'does_not_care_of_errors': 1,
    }


def test_events_are_posted_about_the_object(start):
    example = start('04-events')
    example.wait_until_says("'create_fn' succeeded")

    watching = kubernetes.watch.Watch().stream(
        example.core.list_namespaced_event,
        'default',
        field_selector=f'involvedObject.name={NAME}',
        timeout_seconds=10,
    )
    posted = [event['object'] for event in itertools.islice(watching, 4)]
    posted.sort(key=lambda event: int(event.metadata.resource_version))

    assert [(event.type, event.reason, event.message) for event in posted] == [
        ('Normal', 'Started', 'The work has begun.'),
        ('Warning', 'Suspicious', 'Something looks wrong.'),
        ('Custom', 'Noticed', 'The type can be anything.'),
        ('Error', 'Failed', 'The work has failed: This is what went wrong.'),
    ]
    assert {event.involved_object.uid for event in posted} == {example.get()['metadata']['uid']}
    example.stop()


def test_handlers_are_called_for_their_causes(start):
    example = start('05-handlers')
    example.wait_until_says(
        f'RESUMED {NAME}',
        f'CREATED 1st {NAME}',
        f'CREATED 2nd {NAME}',
        "-> 'value'",
        "'field_fn/spec.field' succeeded",
    )
    assert 'UPDATED' not in example.said

    example.patch(field='another')
    example.wait_until_says(
        f"UPDATED {NAME}: change spec.field from 'value' to 'another'",
        f"FIELD of {NAME}: 'value' -> 'another'",
        "'update_fn' succeeded",
    )
    example.delete()
    example.wait_until_says(f'DELETED 1st {NAME}', f'DELETED 2nd {NAME}')

    example.stop()
    assert 'Traceback' not in example.said


def test_peers_step_aside_for_developers(start):
    peering = [EXAMPLES.parent / name for name in ('peering.yaml', 'peering-default.yaml')]
    deployed = start('06-peering', manifests=[*COMMON, *peering], WHO='production')
    deployed.wait_until_says(f'CREATED {NAME}: seen by production.', "'create_fn' succeeded")

    local = start(
        '06-peering',
        args=['--dev', '--all-namespaces'],
        WHO='developer',
        KUBECONFIG=deployed.kubeconfig,
    )
    deployed.wait_until_says('The operator pauses: there are others with higher priorities')
    deployed.patch(field='another')
    local.wait_until_says(f'UPDATED {NAME}: seen by developer.', "'update_fn' succeeded")

    local.stop()
    deployed.wait_until_says('There is no one left to pause for')
    deployed.patch(field='yet another')
    deployed.wait_until_says(f'UPDATED {NAME}: seen by production.', "'update_fn' succeeded")
    deployed.stop()
    assert deployed.said.count('seen by production') == 2
    assert local.said.count('seen by developer') == 1


def test_subhandlers_are_made_of_items(start):
    example = start('07-subhandlers')

    example.wait_until_says(
        'ALL of 2 items are known.', 'READY item1', 'READY item2', "'create_fn' succeeded"
    )

    example.stop()
    assert [example.said.count(f'READY item{number}') for number in (1, 2)] == [1, 1]


def test_raw_events_are_seen_and_leave_no_traces(start):
    example = start('08-events')
    example.wait_until_says(f'EVENT EXISTING {NAME}')
    before = example.get()

    example.create('vase', labels={'fragile': 'yes'})
    example.wait_until_says(
        'EVENT ADDED vase', 'vase is fragile, but that is no concern of the operator.'
    )

    assert example.get() == before
    example.delete()
    example.wait_until_says(f'EVENT DELETED {NAME}')
    example.stop()


def test_pods_are_deleted_unless_they_are_of_the_system(start):
    example = start(
        '10-builtins', manifests=[EXAMPLES / '10-builtins' / 'pod.yaml'], POD_LIFETIME='0.5'
    )

    example.wait_until_says("[default/short-lived] Handler 'limit_lifetime' succeeded")

    pods = [
        (pod.metadata.namespace, pod.metadata.name)
        for pod in example.core.list_pod_for_all_namespaces().items
    ]
    assert pods == [('kube-system', 'important')]
    example.stop()
    assert 'important' not in example.said


def test_filters_select_the_handlers(start):
    example = start('11-filtering-handlers')

    example.wait_until_says('MATCHED by the functions', "'with_functions' succeeded")

    example.stop()
    assert re.findall('^MATCHED by (.+)$', example.said, re.MULTILINE) == [
        'the value of the label',
        'the presence and absence of labels',
        'the function for the annotation',
        'the value of the field',
        'the functions',
    ]
    assert 'MISMATCHED' not in example.said


def test_tests_of_an_operator_pass(tmp_path):
    done = subprocess.run(
        [sys.executable, '-B', '-m', 'pytest', '-p', 'no:cacheprovider', EXAMPLES / '09-testing'],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout
    assert '4 passed' in done.stdout


def test_bugs_are_found_in_chaos(tmp_path):
    done = subprocess.run(
        [sys.executable, '-B', '-m', 'pytest', '-p', 'no:cacheprovider', EXAMPLES / '18-chaos'],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        timeout=200,
    )

    assert done.returncode == 0, done.stdout
    assert '9 passed' in done.stdout


def test_operator_runs_beside_an_application():
    with kopf.testing.Sandbox(apply=[EXAMPLES / 'crd.yaml']) as sandbox:
        done = subprocess.run(
            [sys.executable, '-B', EXAMPLES / '12-embedded' / 'example.py'],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=100,
            env={**os.environ, 'KUBECONFIG': str(sandbox.kubeconfig)},
        )

    assert done.returncode == 0, done.stdout
    assert re.findall('^STARTED|^NEWS: .+|^STOPPED', done.stdout, re.MULTILINE) == [
        'STARTED',
        *(
            f'NEWS: kopf-example-{number} is {what}'
            for number in (1, 2, 3)
            for what in ('created', 'deleted')
        ),
        'STOPPED',
    ]
    assert 'Traceback' not in done.stdout


def test_hooks_are_called_at_the_beginning_and_at_the_end(start):
    example = start('13-hooks', manifests=[EXAMPLES / '13-hooks' / 'pod.yaml'])
    example.wait_until_says('WATCHING over watched-over')

    example.stop()

    assert re.findall('Starting|WATCHING|Stopping 1 tasks|LEFT', example.said) == [
        'Starting',
        'WATCHING',
        'Stopping 1 tasks',
        'LEFT',
    ]


def test_daemons_live_beside_their_objects(start):
    example = start('14-daemons')
    example.wait_until_says(
        "the field is 'value'.",
        f'BEAT of the thread of {NAME}',
        f'STARTED the careless one of {NAME}',
    )
    assert "'daemon_in_a_thread' failed temporarily" in example.said

    example.patch(field='another')
    example.wait_until_says("the field is 'another'.")
    example.patch(metadata={'annotations': {'someannotation': None}})
    example.wait_until_says(f'CANCELLED the careless one of {NAME}')
    assert 'STOPPED' not in example.said

    example.delete()
    example.wait_until_says(f'STOPPED the coroutine of {NAME}', f'STOPPED the thread of {NAME}')
    example.stop()


def test_timers_tick(start):
    example = start('15-timers')

    example.wait_until_says(
        f'TICK 3 of {NAME}',
        f"QUIET {NAME}: it has stopped changing; the field is 'value'.",
        "'once_in_a_minute' failed temporarily",
        f'DONE for {NAME}',
    )
    example.stop()

    assert [example.said.count(f'{word} ') for word in ('TICK 1 of', 'QUIET', 'DONE for')] == [
        1,
        1,
        1,
    ]


def test_indices_are_seen_by_all_handlers(start):
    example = start('16-indexing', manifests=[*COMMON, EXAMPLES / '16-indexing' / 'pods.yaml'])
    example.wait_until_says(f'PODS of {NAME}: first, second', f'COUNT of {NAME}: 2 pods')

    example.core.delete_namespaced_pod('second', 'default', grace_period_seconds=0)

    example.wait_until_says(f'PODS of {NAME}: first\n', f'COUNT of {NAME}: 1 pods')
    example.stop()
    assert f'COUNT of {NAME}: 0 pods' not in example.said


@pytest.mark.guarantee('RCL-002')
def test_objects_are_reconciled_for_their_secrets(start):
    example = start('19-reconcile')
    example.wait_until_says(f'RECONCILED {NAME} for')

    example.patch(secret='password')
    example.wait_until_says(f'RECONCILED {NAME} for self')
    secret = {'metadata': {'name': 'password'}}
    example.core.create_namespaced_secret('default', secret)

    example.wait_until_says(f'RECONCILED {NAME} for watched')
    example.stop()


@pytest.mark.guarantee('ADM-028', 'ADM-032', 'ADM-035', 'ADM-086')
def test_admission_is_controlled(start):
    example = start('17-admission')
    example.wait_until_says(
        "The ValidatingWebhookConfiguration 'auto.kopf.dev' has 3 webhooks",
        "The MutatingWebhookConfiguration 'auto.kopf.dev' has 1 webhooks",
    )

    example.wait_until_exists()  # it is applied when the operator is ready to review it
    patched = example.patch(field='another')
    assert patched['spec']['priority'] == 'normal'
    with pytest.raises(
        kubernetes.client.ApiException, match=r'The duration must be like 30s, 5m, 1h, not .*soon'
    ) as e:
        example.patch(duration='soon')
    assert e.value.status == 400
    example.patch(duration='1h', metadata={'annotations': {'protected': 'yes'}})
    with pytest.raises(
        kubernetes.client.ApiException, match=f'{NAME} is protected, even from'
    ) as e:
        example.delete()
    assert e.value.status == 403
    example.patch(metadata={'annotations': {'protected': None}})
    example.delete()

    example.wait_until_says(f'REQUESTED UPDATE of {NAME}', f'REQUESTED DELETE of {NAME}')
    example.stop()
    assert 'Traceback' not in example.said


@pytest.mark.guarantee('TYP-008', 'TYP-009', 'TYP-010')
def test_resources_are_typed(start):
    obj = EXAMPLES / '20-typed' / 'obj.yaml'
    example = start('20-typed', args=['--sandbox', '--install-crds', '--apply', obj])
    example.wait_until_says('db: 2 servers of postgres', 'copies are kept for 30 days')
    databases = kubernetes.client.CustomObjectsApi(example.connect())
    key = ('example.com', 'v1', 'default', 'databases', 'db')
    databases.patch_namespaced_custom_object(*key, {'spec': {'replicas': 3}})
    example.wait_until_says('scaled from 2 to 3', 'db: 3 servers')
    with pytest.raises(
        kubernetes.client.ApiException, match='should be greater than or equal to 0'
    ):
        databases.patch_namespaced_custom_object(*key, {'spec': {'replicas': -1}})
    example.stop()


def test_all_kinds_of_handlers_live_together(start):
    example = start('99-all-at-once')
    example.wait_until_says(
        'APPEARED because of create',
        'RECOVERED',
        'PREPARED item1',
        'PREPARED item2',
        "FIELD None -> 'value'",
        'DAEMON is here.',
        'TIMER was here.',
        "'recover' succeeded",
    )

    example.patch(field='another', items=['item3'])
    example.wait_until_says(
        'UPDATED after create', "FIELD 'value' -> 'another'", 'PREPARED item3', "'update' succeeded"
    )
    example.delete()
    example.wait_until_says('DAEMON is gone.', 'DELETED', f'EVENT DELETED of {NAME}')
    example.stop()

    assert example.said.index('STARTUP is over.') < example.said.index('EVENT None')
    assert example.said.count('PREPARED') == 3
    assert 'CLEANUP is over.' in example.said
