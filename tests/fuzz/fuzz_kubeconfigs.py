"""
Kubeconfigs: whatever is in the file, the operator logs in or says why it cannot.
"""

import atexit
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any
from unittest import mock

import kopf
from kopf._cogs.clients.http import sessions
from kopf._cogs.helpers import execs

_directory = pathlib.Path(tempfile.mkdtemp(prefix='kopf-fuzz-'))
atexit.register(shutil.rmtree, _directory, ignore_errors=True)


def check(source: bytes) -> None:
    if b'/' in source.replace(b'://', b'').replace(b'.io/', b''):
        return  # files of this machine are not for reading: some of them have no end
    path = _directory / 'config'
    path.write_bytes(source)
    with (
        mock.patch.dict(os.environ, {'KUBECONFIG': str(path)}),
        mock.patch.object(execs, 'run_plugin', _pretend_to_run),
    ):
        try:
            info = kopf.login_with_kubeconfig()
        except kopf.LoginError as error:
            assert str(error)
            return
    if info is None:
        return
    for secret in (info.token, info.password, info.private_key_data):
        # Or it is also something else.
        is_only = len(secret or '') >= 8 and source.count(str(secret).encode()) == 1
        assert not is_only or str(secret) not in repr(info), 'a secret is shown'
    info.as_http_headers()
    try:
        sessions._check_server(info.server)
        if info.ca_data or info.certificate_data or info.private_key_data:
            info.as_ssl_context()
    except kopf.LoginError as error:
        assert str(error)


def _pretend_to_run(plugin: execs.Plugin, cluster: Mapping[str, Any], **_: Any) -> execs.Issued:
    """Take the arguments of the plugin for what it prints: nothing is run."""
    execs.check_plugin(plugin)
    execs.build_request(plugin, cluster, is_interactive=False)
    return execs.parse_response(plugin, ''.join(plugin.args).encode('utf-8', 'replace'))
