"""
Saved sandboxes: what outlives the process, what is tolerated in the files, and what is refused.

A copy of the directory of a running sandbox is what is left of a killed one.
"""

import json
import os
import shutil
import ssl
import stat
import urllib.error
import urllib.request

import pytest

import kopf.testing
from kopf._sandbox import persistence
from kopf._sandbox.meta import kinds

CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'kopfexamples.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'kind': 'KopfExample', 'plural': 'kopfexamples', 'singular': 'kopfexample'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'selectableFields': [{'jsonPath': '.spec.color'}],
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'properties': {
                            'spec': {
                                'type': 'object',
                                'properties': {
                                    'color': {'type': 'string'},
                                    'size': {'type': 'integer'},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
EXAMPLE = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'metadata': {'name': 'ex'},
    'spec': {'color': 'red', 'size': 1},
}
CONFIG = {
    'apiVersion': 'v1',
    'kind': 'ConfigMap',
    'data': {'a': 'ü'},
    'metadata': {'name': 'cm', 'finalizers': ['kopf.dev/x']},
}


@pytest.fixture
def directory(tmp_path):
    return tmp_path / 'saved'


@pytest.fixture
def crash(tmp_path):
    """Make a sandbox's directory look as if the sandbox were killed right now."""

    def crash(directory):
        shutil.copytree(directory, tmp_path / 'crashed')
        return tmp_path / 'crashed'

    return crash


def take_all(sandbox):
    resources = ('ns', 'cm', 'crd', 'clusterroles', 'clusterrolebindings', 'kopfexamples')
    return {resource: sandbox.list(resource) for resource in resources}


def test_objects_outlive_the_sandbox(directory):
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CRD, EXAMPLE, CONFIG]) as sandbox:
        sandbox.patch('cm', 'cm', {'data': {'b': '2'}})
        sandbox.delete('cm', 'cm')
        before = take_all(sandbox)

    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        assert take_all(sandbox) == before


def test_objects_outlive_a_killed_sandbox(directory, crash):
    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        sandbox.apply(CRD, EXAMPLE, CONFIG)
        sandbox.create({**CONFIG, 'metadata': {'name': 'gone'}})
        sandbox.delete('cm', 'gone')
        sandbox.patch('cm', 'cm', {'data': {'b': '2'}})
        before = take_all(sandbox)
        crashed = crash(directory)

    with kopf.testing.Sandbox(tls=False, save=crashed) as sandbox:
        assert take_all(sandbox) == before


def test_versions_go_on_increasing(directory, crash):
    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        sandbox.create({**CONFIG, 'metadata': {'name': 'gone'}})
        sandbox.delete('cm', 'gone')
        last = int(sandbox.create(CONFIG)['metadata']['resourceVersion'])

    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        assert (
            int(sandbox.patch('cm', 'cm', {'data': {'b': '2'}})['metadata']['resourceVersion'])
            > last
        )


@pytest.mark.parametrize('resource', ['cm', 'secrets', 'kopfexamples'])
def test_history_from_before_is_forgotten(directory, resource):
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CRD, EXAMPLE]) as sandbox:
        version = sandbox.create(CONFIG)['metadata']['resourceVersion']
        last = sandbox.patch('cm', 'cm', {'data': {'b': '2'}})['metadata']['resourceVersion']

    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        (event,) = sandbox.watch(resource, since=version, timeout=1)
        nothing = list(sandbox.watch(resource, since=last, timeout=0))

    assert (event['type'], event['object']['code']) == ('ERROR', 410)
    assert nothing == []


def test_restored_objects_are_selected_by_labels_and_fields(directory):
    labelled = {**EXAMPLE, 'metadata': {'name': 'ex', 'labels': {'a': 'b'}}}
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CRD, labelled]):
        pass

    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        assert sandbox.list('kopfexamples', labels='a=b', fields='spec.color=red')
        assert not sandbox.list('kopfexamples', fields='spec.color=blue')


def test_restored_objects_are_as_the_latest_schema_reads_them(directory, crash):
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CRD, EXAMPLE]) as sandbox:
        path = '/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size'
        sandbox.patch('crd', 'kopfexamples.kopf.dev', [{'op': 'remove', 'path': path}], type='json')
        before = sandbox.get('kopfexamples', 'ex')
        crashed = crash(directory)

    with kopf.testing.Sandbox(tls=False, save=crashed) as sandbox:
        assert sandbox.get('kopfexamples', 'ex') == before
        assert before['spec'] == {'color': 'red'}


def test_restored_owners_still_own(directory):
    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        owner = sandbox.create({**CONFIG, 'metadata': {'name': 'owner'}})
        reference = {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'name': 'owner',
            'uid': owner['metadata']['uid'],
        }
        sandbox.create({**CONFIG, 'metadata': {'name': 'owned', 'ownerReferences': [reference]}})

    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        sandbox.delete('cm', 'owner')
        sandbox.wait('cm', 'owned', lambda body: body is None)

        names = [body['metadata']['name'] for body in sandbox.list('cm', namespace='default')]
        assert names == ['kube-root-ca.crt']


def test_deletion_of_a_definition_takes_its_objects_away_for_good(directory, crash):
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CRD, EXAMPLE]) as sandbox:
        sandbox.delete('crd', 'kopfexamples.kopf.dev')
        sandbox.wait('crd', 'kopfexamples.kopf.dev', lambda body: body is None)
        crashed = crash(directory)

    with kopf.testing.Sandbox(tls=False, save=crashed) as sandbox:
        assert sandbox.list('crd') == []
        sandbox.apply(CRD)
        assert sandbox.list('kopfexamples') == []


def test_credentials_and_the_port_stay_the_same(directory):
    with kopf.testing.Sandbox(save=directory) as sandbox:
        before = sandbox.kubeconfig.read_text()
        alice = sandbox.add_user('alice')
        account = sandbox.create(
            {'apiVersion': 'v1', 'kind': 'ServiceAccount', 'metadata': {'name': 'bob'}}
        )

    with kopf.testing.Sandbox(save=directory) as sandbox:
        assert sandbox.kubeconfig.read_text() == before
        assert sandbox.get('sa', 'bob')['metadata']['uid'] == account['metadata']['uid']
        assert ask_who(sandbox, alice.token) == 'alice'
        assert ask_who(sandbox, 'wrong') is None


def test_tokens_of_service_accounts_stay_valid(directory):
    path = '/api/v1/namespaces/default/serviceaccounts/bob/token'
    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        sandbox.create({'apiVersion': 'v1', 'kind': 'ServiceAccount', 'metadata': {'name': 'bob'}})
        body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}'
        headers = {'Content-Type': 'application/json', 'Authorization': f'Bearer {sandbox.token}'}
        request = urllib.request.Request(f'{sandbox.url}{path}', body, headers, method='POST')
        with urllib.request.urlopen(request, timeout=10) as response:
            token = json.load(response)['status']['token']

    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        assert ask_who(sandbox, token) == 'system:serviceaccount:default:bob'


def ask_who(sandbox, token):
    context = (
        ssl.create_default_context(cadata=sandbox.ca_data.decode()) if sandbox.ca_data else None
    )
    request = urllib.request.Request(
        f'{sandbox.url}/version', headers={'Authorization': f'Bearer {token}'}
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=10):
            return sandbox.requests[-1].user
    except urllib.error.HTTPError as e:
        e.close()
        return None


def test_another_port_is_taken_if_the_saved_one_is_busy(directory, crash):
    with (
        kopf.testing.Sandbox(tls=False, save=directory) as first,
        kopf.testing.Sandbox(tls=False, save=crash(directory)) as second,
    ):
        assert first.url != second.url


def test_saved_files_are_private(directory):
    with kopf.testing.Sandbox(save=directory):
        files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert files == dict.fromkeys(
        ['credentials.json', 'journal.jsonl', 'lock', 'snapshot.jsonl'], 0o600
    )


def test_directory_is_of_one_sandbox_at_a_time(directory):
    with kopf.testing.Sandbox(tls=False, save=directory) as first:
        with pytest.raises(persistence.SaveError, match=f'{directory} is used by another sandbox'):
            kopf.testing.Sandbox(tls=False, save=directory).__enter__()
        first.create(CONFIG)

    with kopf.testing.Sandbox(tls=False, save=directory) as again:
        assert again.get('cm', 'cm')


def test_line_cut_by_the_death_of_the_process_is_dropped(directory, crash):
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CONFIG]) as sandbox:
        sandbox.patch('cm', 'cm', {'data': {'b': '2'}})
        sandbox.patch('cm', 'cm', {'data': {'b': '3'}})
        crashed = crash(directory)
    journal = crashed / 'journal.jsonl'
    journal.write_bytes(journal.read_bytes()[:-10])

    with kopf.testing.Sandbox(tls=False, save=crashed) as sandbox:
        assert sandbox.get('cm', 'cm')['data']['b'] == '2'


def test_death_between_the_snapshot_and_the_journal_loses_nothing(directory, crash):
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CONFIG]) as sandbox:
        sandbox.patch('cm', 'cm', {'data': {'b': '2'}})
        journal = (directory / 'journal.jsonl').read_bytes()
        sandbox.patch('cm', 'cm', {'data': {'b': '3'}})
    (directory / 'journal.jsonl').write_bytes(journal)

    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        assert sandbox.get('cm', 'cm')['data']['b'] == '3'


WRONG_CHANGE = b'{"version":1,"type":"X","home":["",""],"object":{"metadata":{"name":"x","resourceVersion":"1"}}}'


def damage_line(number):
    def damage(path):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[number - 1] = lines[number - 1][:20] + b'\n'
        path.write_bytes(b''.join(lines))

    return damage


def replace_line(number, line):
    def replace(path):
        lines = path.read_bytes().splitlines(keepends=True)
        lines[number - 1] = line + b'\n'
        path.write_bytes(b''.join(lines))

    return replace


@pytest.mark.parametrize(
    'name, damage, message',
    [
        pytest.param(
            'journal.jsonl',
            damage_line(1),
            r'journal.jsonl is damaged in the line 1: ',
            id='journal-middle',
        ),
        pytest.param(
            'journal.jsonl',
            damage_line(2),
            r'journal.jsonl is damaged in the line 2: ',
            id='journal-last',
        ),
        pytest.param(
            'journal.jsonl',
            replace_line(1, b'[]'),
            r'journal.jsonl is damaged in the line 1:',
            id='journal-odd',
        ),
        pytest.param(
            'journal.jsonl',
            replace_line(1, WRONG_CHANGE),
            r'journal.jsonl is damaged in the line 1: unexpected values',
            id='journal-wrong-change',
        ),
        pytest.param(
            'snapshot.jsonl',
            damage_line(1),
            r'snapshot.jsonl is damaged in the line 1: ',
            id='snapshot-header',
        ),
        pytest.param(
            'snapshot.jsonl',
            damage_line(5),
            r'snapshot.jsonl is damaged in the line 5: ',
            id='snapshot-object',
        ),
        pytest.param(
            'snapshot.jsonl',
            replace_line(1, b'{"format":99,"version":1,"count":1}'),
            r'snapshot.jsonl is of another version',
            id='snapshot-of-the-future',
        ),
        pytest.param(
            'snapshot.jsonl',
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            r'snapshot.jsonl is damaged in the line \d+: there must be',
            id='snapshot-cut',
        ),
        pytest.param(
            'snapshot.jsonl',
            os.unlink,
            r'it has journal.jsonl, but no snapshot.jsonl',
            id='snapshot-lost',
        ),
        pytest.param(
            'credentials.json',
            lambda path: path.write_text('{}'),
            r'credentials.json is damaged: ',
            id='credentials',
        ),
        pytest.param(
            'credentials.json',
            lambda path: path.write_text(path.read_text().replace('PRIVATE', 'PUBLIC')),
            r'credentials in .* are damaged: ',
            id='credentials-key',
        ),
    ],
)
def test_damage_is_refused_and_left_as_it_is(directory, crash, name, damage, message):
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CONFIG]) as sandbox:
        sandbox.patch('cm', 'cm', {'data': {'b': '2'}})
        sandbox.patch('cm', 'cm', {'data': {'b': '3'}})
        crashed = crash(directory)
    damage(crashed / name)
    before = {path.name: path.read_bytes() for path in crashed.iterdir()}

    with pytest.raises(persistence.SaveError, match=message):
        kopf.testing.Sandbox(tls=False, save=crashed).__enter__()

    assert {path.name: path.read_bytes() for path in crashed.iterdir()} == before


@pytest.mark.parametrize(
    'prepare, message',
    [
        pytest.param(lambda path: path.write_text(''), 'File exists', id='file'),
        pytest.param(
            lambda path: path.symlink_to('/nonexistent/x'),
            'Cannot use the directory',
            id='broken-link',
        ),
    ],
)
def test_unusable_directory_is_refused(directory, prepare, message):
    prepare(directory)

    with pytest.raises(persistence.SaveError, match=message):
        kopf.testing.Sandbox(tls=False, save=directory).__enter__()


def test_failed_start_leaves_no_directory_behind(directory):
    wrong = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'Wrong Name'}}

    with pytest.raises(kopf.testing.ApiError):
        kopf.testing.Sandbox(tls=False, save=directory, apply=[CONFIG, wrong]).__enter__()

    assert not directory.exists()


def test_failed_start_changes_nothing_that_was_saved(directory):
    wrong = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'Wrong Name'}}
    with kopf.testing.Sandbox(tls=False, save=directory):
        pass
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    with pytest.raises(kopf.testing.ApiError):
        kopf.testing.Sandbox(tls=False, save=directory, apply=[CONFIG, wrong]).__enter__()

    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_failure_to_save_at_the_start_leaves_nothing_behind(tmp_path):
    (tmp_path / 'credentials.json').mkdir()

    with pytest.raises(
        persistence.SaveError, match=f'Cannot use the directory {tmp_path}: Is a directory'
    ):
        kopf.testing.Sandbox(tls=False, save=tmp_path).__enter__()

    assert sorted(path.name for path in tmp_path.iterdir()) == ['credentials.json', 'lock']


def test_failure_to_save_in_the_end_is_raised(directory):
    with (
        pytest.raises(persistence.SaveError, match=f'Cannot use the directory {directory}'),
        kopf.testing.Sandbox(tls=False, save=directory),
    ):
        shutil.rmtree(directory)


def test_failure_to_save_in_the_end_masks_no_other_failure(directory, caplog):
    with pytest.raises(ZeroDivisionError), kopf.testing.Sandbox(tls=False, save=directory):
        shutil.rmtree(directory)
        1 / 0  # noqa: B018

    assert 'The sandbox has failed to stop' in caplog.text


def test_long_journal_becomes_a_snapshot(directory, crash, monkeypatch):
    monkeypatch.setattr(persistence, 'LONG_JOURNAL', 10)
    with kopf.testing.Sandbox(tls=False, save=directory, apply=[CONFIG]) as sandbox:
        for index in range(25):
            sandbox.patch('cm', 'cm', {'data': {'b': str(index)}})
        crashed = crash(directory)

    assert len((crashed / 'journal.jsonl').read_bytes().splitlines()) == 5
    with kopf.testing.Sandbox(tls=False, save=crashed) as sandbox:
        assert sandbox.get('cm', 'cm')['data']['b'] == '24'


def test_full_disk_leaves_the_journal_without_damage(directory, crash, monkeypatch, caplog):
    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        sandbox.create(CONFIG)
        journal = (directory / 'journal.jsonl').read_bytes()
        encode = persistence.encode_entry
        monkeypatch.setattr(persistence, 'encode_entry', lambda *args: Torn(encode(*args)))
        sandbox.patch('cm', 'cm', {'data': {'b': '2'}})
        monkeypatch.undo()
        sandbox.patch('cm', 'cm', {'data': {'b': '3'}})
        crashed = crash(directory)

    assert (crashed / 'journal.jsonl').read_bytes() == journal
    assert 'The changes are no longer saved' in caplog.text
    with kopf.testing.Sandbox(tls=False, save=directory) as sandbox:
        assert sandbox.get('cm', 'cm')['data']['b'] == '3'


class Torn(bytes):
    """A line that claims to be longer than what gets written."""

    def __len__(self):
        return super().__len__() + 1


def test_only_the_last_states_are_left_of_the_changes():
    home = kinds.Home('', 'configmaps')
    entries = [
        persistence.Entry(
            version, type, home, {'metadata': {'name': 'x', 'resourceVersion': str(version)}}
        )
        for version, type in [(1, 'ADDED'), (2, 'MODIFIED'), (3, 'DELETED'), (4, 'ADDED')]
    ]

    assert [body['metadata']['resourceVersion'] for _, body in persistence.replay(entries)] == ['4']
    assert persistence.replay(entries[:3]) == []
