"""
Exec plugins: programs that print credentials, as kubectl runs them (``client.authentication.k8s.io``).

Running one blocks the thread: for seconds normally, up to the timeout at most. Nothing is cached.
The errors tell which program has failed, and how to get it; they never quote what it has printed as credentials.
"""
import dataclasses
import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._cogs.helpers import jsons

GROUP = 'client.authentication.k8s.io'
VERSIONS = (f'{GROUP}/v1', f'{GROUP}/v1beta1')
MODES = ('Never', 'IfAvailable', 'Always')

TIMEOUT = 60.0
INTERACTIVE_TIMEOUT = 300.0
"""Seconds to wait for a program; much longer if it can ask the user."""

_QUOTED = 500


class PluginError(Exception):
    """The program is not found, has failed, or has printed something else than credentials."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """How to run the program: the ``exec`` section of a kubeconfig, with the path resolved."""
    api_version: str
    command: str
    args: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    install_hint: str = ''
    provide_cluster_info: bool = False
    interactive_mode: str = 'IfAvailable'


@dataclasses.dataclass(frozen=True)
class Issued:
    """What the program has issued: a token, or a certificate with its key, or both."""
    token: str = dataclasses.field(default='', repr=False)
    certificate: str = dataclasses.field(default='', repr=False)
    private_key: str = dataclasses.field(default='', repr=False)
    expiration: datetime.datetime | None = None


def check_plugin(plugin: Plugin) -> None:
    """Raise `PluginError` if such a plugin cannot be run by anyone."""
    if not plugin.command:
        raise PluginError("The exec plugin has no command.")
    if plugin.api_version not in VERSIONS:
        raise PluginError(f"The exec plugin {plugin.command!r} has the apiVersion {plugin.api_version!r}; "
                          f"supported are {' and '.join(VERSIONS)}.")
    if plugin.interactive_mode not in MODES:
        raise PluginError(f"The exec plugin {plugin.command!r} has the interactiveMode {plugin.interactive_mode!r}; "
                          f"supported are {', '.join(MODES)}.")


def run_plugin(plugin: Plugin, cluster: Mapping[str, Any], *, environ: Mapping[str, str],
               terminal: bool | None = None, timeout: float | None = None) -> Issued:
    """
    Run the program and take what it issues.

    ``cluster`` is for the programs that ask for it; ``terminal`` tells if there is a user to talk to at the stdin.
    Raises `PluginError`. After the timeout, the program is killed.
    """
    check_plugin(plugin)
    has_terminal = _has_terminal() if terminal is None else terminal
    if plugin.interactive_mode == 'Always' and not has_terminal:
        raise PluginError(f"The exec plugin {plugin.command!r} needs a terminal, and there is none: "
                          f"run it beforehand, or use other credentials.")
    is_interactive = has_terminal and plugin.interactive_mode != 'Never'
    request = build_request(plugin, cluster, is_interactive=is_interactive)
    variables = {**environ, **plugin.env, 'KUBERNETES_EXEC_INFO': jsons.dumps(request).decode()}
    command = [_find_program(plugin, environ), *plugin.args]
    limit = timeout if timeout is not None else INTERACTIVE_TIMEOUT if is_interactive else TIMEOUT
    return parse_response(plugin, _run(plugin, command, variables, is_interactive, limit))


def build_request(plugin: Plugin, cluster: Mapping[str, Any], *, is_interactive: bool) -> dict[str, Any]:
    """Build what the program is told in its environment."""
    spec: dict[str, Any] = {'interactive': is_interactive}
    if plugin.provide_cluster_info:
        spec['cluster'] = dict(cluster)
    return {'apiVersion': plugin.api_version, 'kind': 'ExecCredential', 'spec': spec}


def parse_response(plugin: Plugin, raw: bytes) -> Issued:
    """Read what the program has printed."""
    try:
        response = jsons.loads(raw)
    except jsons.JSONDecodeError:
        raise _refuse(plugin, "which is not JSON") from None
    if not isinstance(response, dict) or response.get('kind') != 'ExecCredential':
        raise _refuse(plugin, "which is not an ExecCredential")
    if response.get('apiVersion') != plugin.api_version:
        raise _refuse(plugin, f"of another apiVersion than the asked {plugin.api_version}")
    status = response.get('status')
    if not isinstance(status, dict):
        raise _refuse(plugin, "with no status")
    names = ('token', 'clientCertificateData', 'clientKeyData')
    token, certificate, private_key = (status.get(name) or '' for name in names)
    if not all(isinstance(value, str) for value in (token, certificate, private_key)):
        raise _refuse(plugin, f"with something else than strings in {', '.join(names)}")
    if bool(certificate) != bool(private_key):
        raise _refuse(plugin, "with only one of clientCertificateData and clientKeyData")
    if not token and not certificate:
        raise _refuse(plugin, "with neither token nor clientCertificateData")
    return Issued(token, certificate, private_key, _parse_expiration(plugin, status.get('expirationTimestamp')))


def _parse_expiration(plugin: Plugin, text: Any) -> datetime.datetime | None:
    if text is None:
        return None
    try:
        expiration = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise _refuse(plugin, "with expirationTimestamp not as in RFC 3339") from None
    return expiration if expiration.tzinfo is not None else expiration.replace(tzinfo=datetime.UTC)


def _refuse(plugin: Plugin, reason: str) -> PluginError:
    return PluginError(f"The exec plugin {plugin.command!r} has printed a response {reason}. "
                       f"Run it by hand to see, and check its version and its arguments.")


def _has_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        return False


def _find_program(plugin: Plugin, environ: Mapping[str, str]) -> str:
    import shutil  # with all kinds of archives
    found = shutil.which(plugin.command, path=environ.get('PATH', os.defpath))
    if found is None:
        where = 'exists and is executable' if os.path.dirname(plugin.command) else 'is in the PATH'
        hint = f"\n{plugin.install_hint.strip()}" if plugin.install_hint.strip() else ''
        raise PluginError(f"The exec plugin {plugin.command!r} is not found: check that it {where}.{hint}")
    return found


def _run(plugin: Plugin, command: Sequence[str], variables: Mapping[str, str], is_interactive: bool,
         timeout: float) -> bytes:
    try:
        # An interactive program talks to the user by the terminal; others are silenced, and are killed with children.
        process = subprocess.Popen(
            command, env=dict(variables), stdout=subprocess.PIPE,
            stdin=None if is_interactive else subprocess.DEVNULL,
            stderr=None if is_interactive else subprocess.PIPE,
            start_new_session=not is_interactive)
    except (OSError, ValueError) as error:
        raise PluginError(f"The exec plugin {plugin.command!r} does not start: {error}.") from None
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill(process, with_children=not is_interactive)
            raise PluginError(f"The exec plugin {plugin.command!r} has not finished in {timeout:g} seconds.") from None
    if process.returncode != 0:
        raise PluginError(f"The exec plugin {plugin.command!r} has failed with the code {process.returncode}"
                          f"{_quote_tail(stderr or b'')}")
    return stdout


def _kill(process: subprocess.Popen[bytes], *, with_children: bool) -> None:
    if not with_children or not hasattr(os, 'killpg'):
        process.kill()
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _quote_tail(stderr: bytes) -> str:
    text = stderr.decode('utf-8', 'replace').strip()
    return f": {text[-_QUOTED:]}" if text else '.'
