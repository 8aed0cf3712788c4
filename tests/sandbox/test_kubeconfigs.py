"""Kubeconfigs are complete, private, and never half-written."""

import base64
import os
import stat

import pytest
import yaml

from kopf._sandbox import kubeconfigs
from kopf._sandbox.auth import certificates

URL = 'https://127.0.0.1:6443'
PAIR = certificates.Pair(b'cert', b'key')


def decode(text: str) -> bytes:
    return base64.b64decode(text)


def test_kubeconfig_with_token_leads_to_the_cluster():
    kubeconfig = kubeconfigs.build_kubeconfig(URL, b'ca', token='secret', namespace='ns')

    assert kubeconfig['clusters'][0]['cluster'] == {
        'server': URL,
        'certificate-authority-data': 'Y2E=',
    }
    assert kubeconfig['users'][0]['user'] == {'token': 'secret'}
    assert kubeconfig['contexts'][0]['context'] == {
        'cluster': 'sandbox',
        'user': 'sandbox',
        'namespace': 'ns',
    }
    assert kubeconfig['current-context'] == kubeconfig['contexts'][0]['name']


def test_kubeconfig_with_client_certificate_has_both_of_its_parts():
    kubeconfig = kubeconfigs.build_kubeconfig(URL, b'ca', pair=PAIR)

    user = kubeconfig['users'][0]['user']
    assert set(user) == {'client-certificate-data', 'client-key-data'}
    assert decode(user['client-certificate-data']) == b'cert'
    assert decode(user['client-key-data']) == b'key'


def test_file_is_private_and_readable_as_yaml(tmp_path):
    path = tmp_path / 'kubeconfig'
    kubeconfig = kubeconfigs.build_kubeconfig(URL, b'ca', token='secret')

    kubeconfigs.write_kubeconfig(path, kubeconfig)

    assert yaml.safe_load(path.read_text()) == kubeconfig
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ['kubeconfig']


def test_existing_file_is_replaced_with_its_looser_mode(tmp_path):
    path = tmp_path / 'kubeconfig'
    path.write_text('old')
    path.chmod(0o644)

    kubeconfigs.write_kubeconfig(path, {'kind': 'Config'})

    assert path.read_text() == 'kind: Config\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_symlink_stays_and_its_target_is_replaced(tmp_path):
    target, link = tmp_path / 'target', tmp_path / 'link'
    target.write_text('old')
    link.symlink_to(target)

    kubeconfigs.write_kubeconfig(link, {'kind': 'Config'})

    assert link.is_symlink()
    assert target.read_text() == 'kind: Config\n'


def test_missing_directory_is_named(tmp_path):
    with pytest.raises(
        OSError, match=r'^Cannot write the kubeconfig to .*: there is no directory .*absent\.$'
    ):
        kubeconfigs.write_kubeconfig(tmp_path / 'absent' / 'kubeconfig', {})


def test_directory_in_place_of_file_is_explained(tmp_path):
    with pytest.raises(OSError, match='it exists and is not a regular file'):
        kubeconfigs.write_kubeconfig(tmp_path, {})


def test_failure_leaves_old_file_and_no_traces(tmp_path, monkeypatch):
    path = tmp_path / 'kubeconfig'
    path.write_text('old')

    def refuse(source: str, target: str) -> None:
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(os, 'replace', refuse)
    with pytest.raises(OSError, match=r'^Cannot write the kubeconfig to .*: Permission denied\.$'):
        kubeconfigs.write_kubeconfig(path, {})

    assert os.listdir(tmp_path) == ['kubeconfig']
    assert path.read_text() == 'old'
