"""Kubeconfigs are read and merged as kubectl does that, and their mistakes are explained."""

import base64
import os
import pathlib

import pytest
import yaml

from kopf._cogs.helpers import execs, kubeconfigs


def write(path: pathlib.Path, **content: object) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        yaml.safe_dump({key.replace('_', '-'): value for key, value in content.items()})
    )
    return path


def describe(cluster=None, user=None, context=None):
    """
    Build the content of a kubeconfig with one cluster, one user and one context, all with the same
    name.
    """
    return {
        'clusters': [{'name': 'x', 'cluster': {'server': 'https://x', **(cluster or {})}}],
        'users': [{'name': 'x', 'user': user or {}}],
        'contexts': [{'name': 'x', 'context': {'cluster': 'x', 'user': 'x', **(context or {})}}],
        'current_context': 'x',
    }


def read(*paths: pathlib.Path) -> kubeconfigs.Access:
    kubeconfig = kubeconfigs.read_kubeconfig(paths)
    assert kubeconfig is not None
    return kubeconfigs.select_access(kubeconfig)


@pytest.mark.parametrize(
    'value, expected',
    [
        pytest.param(None, ['/home/me/.kube/config'], id='absent'),
        pytest.param('', ['/home/me/.kube/config'], id='empty'),
        pytest.param('/a', ['/a'], id='one'),
        pytest.param(
            os.pathsep.join(['/a', '', '~/b', '/a', 'c']), ['/a', '/home/me/b', 'c'], id='several'
        ),
    ],
)
def test_files_are_listed_by_the_environment(monkeypatch, value, expected):
    monkeypatch.setenv('HOME', '/home/me')

    paths = kubeconfigs.list_paths({} if value is None else {'KUBECONFIG': value})

    assert paths == [pathlib.Path(path) for path in expected]


def test_absent_files_are_ignored(tmp_path):
    path = write(tmp_path / 'config', **describe())

    assert kubeconfigs.read_kubeconfig([tmp_path / 'absent', path / 'absent']) is None
    assert read(tmp_path / 'absent', path).server == 'https://x'


def test_first_file_to_define_a_name_wins_in_full(tmp_path):
    first = write(tmp_path / '1', users=[{'name': 'x', 'user': {'token': 'first'}}], clusters=None)
    second = write(tmp_path / '2', **describe(user={'token': 'second', 'username': 'second'}))
    third = write(
        tmp_path / '3', **{**describe(cluster={'server': 'https://y'}), 'current_context': 'y'}
    )

    access = read(first, second, third)

    assert access.user.values == {'token': 'first'}
    assert access.server == 'https://x'
    assert access.context.name == 'x'


def test_paths_are_relative_to_their_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('HOME', '/home/me')
    clusters = [
        {'name': 'x', 'cluster': {'server': 'https://x', 'certificate-authority': 'certs/ca'}}
    ]
    write(tmp_path / 'a/config', clusters=clusters)
    write(
        tmp_path / 'b/config',
        **describe(
            user={
                'client-certificate': '/certs/crt',
                'client-key': '~/key',
                'tokenFile': '../token',
                'exec': {'command': './plugin'},
            }
        ),
    )

    access = read(pathlib.Path('a/config'), pathlib.Path('b/config'))

    assert access.cluster.get_path('certificate-authority') == str(tmp_path / 'a/certs/ca')
    assert access.user.get_path('client-certificate') == '/certs/crt'
    assert access.user.get_path('client-key') == '/home/me/key'
    assert access.user.get_path('tokenFile') == str(tmp_path / 'b/../token')
    assert access.user.get_path('absent') == ''
    assert access.plugin.command == str(tmp_path / 'b/plugin')


@pytest.mark.parametrize(
    'cluster, user, expected',
    [
        pytest.param({'server': 'https://host/path/'}, {}, 'https://host/path', id='slash'),
        pytest.param({'server': 'host:8080'}, {}, 'http://host:8080', id='plain'),
        pytest.param(
            {'server': 'host:6443', 'certificate-authority': 'ca'}, {}, 'https://host:6443', id='ca'
        ),
        pytest.param(
            {'server': 'host:6443', 'insecure-skip-tls-verify': True},
            {},
            'https://host:6443',
            id='insecure',
        ),
        pytest.param(
            {'server': 'host:6443'},
            {'client-certificate-data': 'x'},
            'https://host:6443',
            id='certificate',
        ),
    ],
)
def test_server_gets_its_scheme(tmp_path, cluster, user, expected):
    access = read(write(tmp_path / 'config', **describe(cluster=cluster, user=user)))

    assert access.server == expected


def test_context_with_no_user_is_anonymous(tmp_path):
    access = read(write(tmp_path / 'config', **describe(context={'user': ''})))

    assert access.user.values == {}
    assert access.plugin is None


def test_exec_plugin_is_described(tmp_path):
    access = read(
        write(
            tmp_path / 'config',
            **describe(
                user={
                    'exec': {
                        'apiVersion': 'client.authentication.k8s.io/v1',
                        'command': 'aws',
                        'args': ['eks', 'get-token'],
                        'env': [{'name': 'AWS_PROFILE', 'value': 'me'}],
                        'installHint': 'Install it.',
                        'provideClusterInfo': True,
                        'interactiveMode': 'Never',
                    }
                }
            ),
        )
    )

    assert access.plugin == execs.Plugin(
        'client.authentication.k8s.io/v1',
        'aws',
        ('eks', 'get-token'),
        {'AWS_PROFILE': 'me'},
        'Install it.',
        provide_cluster_info=True,
        interactive_mode='Never',
    )


def test_cluster_is_described_to_plugins(tmp_path):
    (tmp_path / 'ca').write_bytes(b'PEM')
    config = {'audience': 'me'}
    access = read(
        write(
            tmp_path / 'config',
            **describe(
                cluster={
                    'certificate-authority': 'ca',
                    'tls-server-name': 'name',
                    'proxy-url': 'http://proxy',
                    'insecure-skip-tls-verify': True,
                    'disable-compression': False,
                    'extensions': [
                        {'name': 'other', 'extension': {}},
                        {'name': 'client.authentication.k8s.io/exec', 'extension': config},
                    ],
                }
            ),
        )
    )

    info = kubeconfigs.build_cluster_info(access.cluster, access.server)

    assert info == {
        'server': 'https://x',
        'tls-server-name': 'name',
        'insecure-skip-tls-verify': True,
        'proxy-url': 'http://proxy',
        'certificate-authority-data': base64.b64encode(b'PEM').decode(),
        'config': config,
    }


def test_unreadable_authority_is_explained(tmp_path):
    access = read(
        write(tmp_path / 'config', **describe(cluster={'certificate-authority': 'absent'}))
    )

    with pytest.raises(
        kubeconfigs.KubeconfigError, match=r"Cannot read .*/absent for the field 'certificate-auth"
    ):
        kubeconfigs.build_cluster_info(access.cluster, access.server)


@pytest.mark.parametrize(
    'content, message',
    [
        pytest.param(
            'users:\n- token: s3cret: s3cret',
            r'config is not valid YAML at the line 2\.',
            id='yaml',
        ),
        pytest.param('\x00s3cret', r'config is not valid YAML', id='binary'),
        pytest.param('- s3cret', 'config must be a mapping', id='list'),
        pytest.param(
            'users: s3cret',
            "The field 'users' in the kubeconfig .*config must be a list",
            id='users',
        ),
        pytest.param(
            'users: [s3cret]',
            "The item 0 of 'users' in the kubeconfig .*config must have",
            id='user',
        ),
        pytest.param(
            'users: [{name: 1}]',
            "The item 0 of 'users' in the kubeconfig .*config must have",
            id='name',
        ),
        pytest.param(
            'users: [{name: a, user: s3cret}]',
            "The item 0 of 'users' in the kubeconfig",
            id='values',
        ),
        pytest.param(
            'users: [{name: a}, {name: a}]', "config has several users named 'a'", id='duplicates'
        ),
        pytest.param(
            '', 'There is no current-context in the kubeconfig .*config: .*use-context', id='empty'
        ),
        pytest.param(
            'current-context: 1',
            "The field 'current-context' .* must be a string",
            id='context-type',
        ),
        pytest.param(
            'current-context: a',
            "no context 'a', which the current-context names, .*config. There are: none",
            id='context',
        ),
        pytest.param(
            'current-context: a\ncontexts: [{name: a, context: {}}]',
            "There is no cluster in the context 'a' of .*config",
            id='no-cluster',
        ),
        pytest.param(
            'current-context: a\ncontexts: [{name: a, context: {cluster: b}}]\nclusters: [{name: c}, {name: d}]',
            "There is no cluster 'b', which the context 'a' of .*config names, .* There are: c, d",
            id='cluster',
        ),
        pytest.param(
            'current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\nclusters: [{name: b}]',
            "There is no user 'c', which the context 'a' of",
            id='unknown-user',
        ),
        pytest.param(
            'current-context: a\ncontexts: [{name: a, context: {cluster: b}}]\nclusters: [{name: b}]',
            "There is no server in the cluster 'b' of .*config",
            id='server',
        ),
    ],
)
def test_broken_files_are_explained_and_not_quoted(tmp_path, content, message):
    path = tmp_path / 'config'
    path.write_text(content)

    with pytest.raises(kubeconfigs.KubeconfigError, match=message) as caught:
        read(path)

    assert 's3cret' not in f'{caught.value}'
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    'user, message',
    [
        pytest.param(
            {'as': 's3cret'},
            r"asks for impersonation \(the field 'as'\), which is not supported",
            id='as',
        ),
        pytest.param(
            {'exec': 's3cret'}, "The field 'exec' in the user 'x' .* must be a mapping", id='exec'
        ),
        pytest.param(
            {'exec': {'command': ['s3cret']}},
            "The field 'command' in the exec plugin of the user 'x'",
            id='cmd',
        ),
        pytest.param(
            {'exec': {'args': 's3cret'}}, "The field 'args' in .* must be a list", id='args-type'
        ),
        pytest.param(
            {'exec': {'args': [12345]}}, 'The args of the exec plugin .* must be strings', id='args'
        ),
        pytest.param(
            {'exec': {'env': [{'name': 's3cret'}]}},
            'The env of the exec plugin .* must be a list',
            id='env',
        ),
        pytest.param({'exec': {'provideClusterInfo': 'yes'}}, 'must be true or false', id='flag'),
    ],
)
def test_wrong_users_are_explained_and_not_quoted(tmp_path, user, message):
    path = write(tmp_path / 'config', **describe(user=user))

    with pytest.raises(kubeconfigs.KubeconfigError, match=message) as caught:
        read(path)

    assert 's3cret' not in f'{caught.value}'


def test_numbers_in_place_of_strings_are_refused(tmp_path):
    access = read(write(tmp_path / 'config', **describe(user={'token': 12345})))

    with pytest.raises(
        kubeconfigs.KubeconfigError,
        match=r"The field 'token' .* must be a string: put it in quotes",
    ):
        access.user.get_text('token')


def test_directory_in_place_of_a_file_is_explained(tmp_path):
    with pytest.raises(
        kubeconfigs.KubeconfigError, match=r'Cannot read the kubeconfig .*: Is a directory'
    ):
        kubeconfigs.read_kubeconfig([tmp_path])


def test_secrets_are_not_represented(tmp_path):
    path = write(tmp_path / 'config', **describe(user={'token': 's3cret'}))

    assert 's3cret' not in f'{kubeconfigs.read_kubeconfig([path])!r} {read(path)!r}'
