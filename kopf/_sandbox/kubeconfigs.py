"""
Kubeconfigs: the address of the sandbox and the credentials for clients.

A kubeconfig holds credentials: its file is private to the user, and is written atomically.
"""

import base64
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

from kopf._sandbox.auth import certificates

NAME = 'sandbox'
"""The name of the cluster, of the user and of the context."""

MARK = {'name': 'kopf.dev/sandbox', 'extension': {'provider': 'kopf'}}
"""The mark of sandboxes' kubeconfigs, to distinguish them from others."""


def build_kubeconfig(
    url: str,
    ca_pem: bytes,
    *,
    token: str = '',
    pair: certificates.Pair | None = None,
    namespace: str = 'default',
) -> dict[str, Any]:
    """
    Build a kubeconfig with one context, for a bearer token, a client certificate, or both. There is
    no CA without TLS.
    """
    user: dict[str, str] = {}
    if token:
        user['token'] = token
    if pair is not None:
        user['client-certificate-data'] = _encode(pair.certificate)
        user['client-key-data'] = _encode(pair.key)

    trust = {'certificate-authority-data': _encode(ca_pem)} if ca_pem else {}
    return {
        'apiVersion': 'v1',
        'kind': 'Config',
        'clusters': [{'name': NAME, 'cluster': {'server': url, **trust}}],
        'users': [{'name': NAME, 'user': user}],
        'contexts': [
            {'name': NAME, 'context': {'cluster': NAME, 'user': NAME, 'namespace': namespace}}
        ],
        'current-context': NAME,
        'extensions': [MARK],
    }


def write_kubeconfig(path: pathlib.Path, kubeconfig: Mapping[str, Any]) -> None:
    """
    Write a kubeconfig, readable only by the user, replacing an existing file.

    The replacement is atomic: readers see either the old or the new file in full. Raises `OSError`
    with a message for the user; then, nothing is changed.
    """
    import yaml

    target = path.resolve()  # for a symlink, its target is replaced, not the link
    if target.exists() and not target.is_file():
        raise OSError(
            f'Cannot write the kubeconfig to {path}: it exists and is not a regular file.'
        )

    text = yaml.safe_dump(dict(kubeconfig), sort_keys=False)
    try:
        _replace_file(target, text.encode())
    except FileNotFoundError as error:
        what = 'files cannot be made in' if target.parent.is_dir() else 'there is no directory'
        raise OSError(f'Cannot write the kubeconfig to {path}: {what} {target.parent}.') from error
    except OSError as error:
        raise OSError(
            f'Cannot write the kubeconfig to {path}: {error.strerror or error}.'
        ) from error


def check_replaceable(path: pathlib.Path) -> None:
    """Raise `FileExistsError` if the file exists and is not a kubeconfig of a sandbox."""
    import yaml

    try:
        text = path.read_text()
    except FileNotFoundError:
        return
    except OSError as error:
        raise OSError(
            f'Cannot write the kubeconfig to {path}: {error.strerror or error}.'
        ) from error
    except UnicodeDecodeError:
        text = '?'

    try:
        is_ours = not text.strip() or _is_ours(yaml.safe_load(text))
    except yaml.YAMLError:
        is_ours = False

    if not is_ours:
        raise FileExistsError(
            f'The file {path} is not of a sandbox, and will not be overwritten: choose another one.'
        )


def _is_ours(kubeconfig: Any) -> bool:
    try:
        return MARK in kubeconfig['extensions'] and all(
            item['name'] == NAME for item in kubeconfig['clusters']
        )
    except (TypeError, KeyError):
        return False


def _replace_file(target: pathlib.Path, content: bytes) -> None:
    # With mode 0600.
    descriptor, temporary = tempfile.mkstemp(prefix=f'.{target.name}.', dir=target.parent)
    try:
        with os.fdopen(descriptor, 'wb') as file:
            file.write(content)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _encode(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
