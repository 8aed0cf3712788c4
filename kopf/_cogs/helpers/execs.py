"""
Exec plugins: programs that print credentials, as kubectl runs them
(``client.authentication.k8s.io``).

Running a plugin blocks the thread: usually for seconds, at most for the timeout. Nothing is cached.
Errors name the failed program and the way to install it, but never quote its output: some programs
print credentials in their error messages. These messages are logged only for debugging.
"""

import dataclasses
import datetime
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from kopf._cogs.helpers import jsons, times

logger = logging.getLogger(__name__)

GROUP = 'client.authentication.k8s.io'
VERSIONS = (f'{GROUP}/v1', f'{GROUP}/v1beta1')
MODES = ('Never', 'IfAvailable', 'Always')

TIMEOUT = 60.0
INTERACTIVE_TIMEOUT = 300.0
"""Seconds to wait for a program; much longer if it may ask the user."""

KILLING_TIMEOUT = 1.0
"""Seconds to read the rest of a killed program's output; its children may hold the pipes."""

OUTPUT_LIMIT = 1024 * 1024
"""Bytes of output that are read; more than that is an error in stdout, and is skipped in stderr."""

_QUOTED = 500
_CHUNK = 64 * 1024


class PluginError(Exception):
    """The program is not found, has failed, or has printed anything but credentials."""


@dataclasses.dataclass(frozen=True)
class Plugin:
    """The way to run the program: the ``exec`` section of a kubeconfig, with the path resolved."""

    api_version: str
    command: str
    args: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    install_hint: str = ''
    provide_cluster_info: bool = False
    interactive_mode: str = 'IfAvailable'


@dataclasses.dataclass(frozen=True)
class Issued:
    """The credentials issued by the program: a token, or a certificate with its key, or both."""

    token: str = dataclasses.field(default='', repr=False)
    certificate: str = dataclasses.field(default='', repr=False)
    private_key: str = dataclasses.field(default='', repr=False)
    expiration: datetime.datetime | None = None


def check_plugin(plugin: Plugin) -> None:
    """Raise `PluginError` if the plugin is misconfigured and cannot be run."""
    if not plugin.command:
        raise PluginError('The exec plugin has no command.')
    if plugin.api_version not in VERSIONS:
        raise PluginError(
            f'The exec plugin {plugin.command!r} has the apiVersion {plugin.api_version!r}; '
            f'supported are {" and ".join(VERSIONS)}.'
        )
    if plugin.interactive_mode not in MODES:
        raise PluginError(
            f'The exec plugin {plugin.command!r} has the interactiveMode '
            f'{plugin.interactive_mode!r}; supported are {", ".join(MODES)}.'
        )


def run_plugin(
    plugin: Plugin,
    cluster: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    terminal: bool | None = None,
    timeout: float | None = None,
) -> Issued:
    """
    Run the program and return the credentials that it issues.

    ``cluster`` is passed to the programs that request it; ``terminal`` is whether a user can be
    asked via stdin. Raises `PluginError`. After the timeout, the program is killed.
    """
    check_plugin(plugin)
    has_terminal = _has_terminal() if terminal is None else terminal
    if plugin.interactive_mode == 'Always' and not has_terminal:
        raise PluginError(
            f'The exec plugin {plugin.command!r} needs a terminal, and there is none: '
            f'run it beforehand, or use other credentials.'
        )

    is_interactive = has_terminal and plugin.interactive_mode != 'Never'
    request = build_request(plugin, cluster, is_interactive=is_interactive)
    variables = {**environ, **plugin.env, 'KUBERNETES_EXEC_INFO': jsons.dumps(request).decode()}
    command = [_find_program(plugin, environ), *plugin.args]
    limit = timeout if timeout is not None else INTERACTIVE_TIMEOUT if is_interactive else TIMEOUT

    return parse_response(plugin, _run(plugin, command, variables, is_interactive, limit))


def build_request(
    plugin: Plugin, cluster: Mapping[str, Any], *, is_interactive: bool
) -> dict[str, Any]:
    """Build the request that is passed to the program in its environment."""
    spec: dict[str, Any] = {'interactive': is_interactive}
    if plugin.provide_cluster_info:
        spec['cluster'] = dict(cluster)
    return {'apiVersion': plugin.api_version, 'kind': 'ExecCredential', 'spec': spec}


def parse_response(plugin: Plugin, raw: bytes) -> Issued:
    """Parse the output of the program."""
    try:
        response = jsons.loads(raw)
    except jsons.JSONDecodeError:
        raise _refuse(plugin, 'which is not JSON') from None

    if not isinstance(response, dict) or response.get('kind') != 'ExecCredential':
        raise _refuse(plugin, 'which is not an ExecCredential')
    if response.get('apiVersion') != plugin.api_version:
        raise _refuse(plugin, f'of another apiVersion than the asked {plugin.api_version}')

    status = response.get('status')
    if not isinstance(status, dict):
        raise _refuse(plugin, 'with no status')

    names = ('token', 'clientCertificateData', 'clientKeyData')
    token, certificate, private_key = (status.get(name) or '' for name in names)
    if not all(isinstance(value, str) for value in (token, certificate, private_key)):
        raise _refuse(plugin, f'with something else than strings in {", ".join(names)}')
    if bool(certificate) != bool(private_key):
        raise _refuse(plugin, 'with only one of clientCertificateData and clientKeyData')
    if not token and not certificate:
        raise _refuse(plugin, 'with neither token nor clientCertificateData')
    return Issued(
        token,
        certificate,
        private_key,
        _parse_expiration(plugin, status.get('expirationTimestamp')),
    )


def _parse_expiration(plugin: Plugin, text: Any) -> datetime.datetime | None:
    if text is None:
        return None
    expiration = times.parse_moment(text)
    if expiration is None:
        raise _refuse(plugin, 'with expirationTimestamp not as in RFC 3339')
    return expiration


def _refuse(plugin: Plugin, reason: str) -> PluginError:
    return PluginError(
        f'The exec plugin {plugin.command!r} has printed a response {reason}. '
        f'Run it by hand to see, and check its version and its arguments.'
    )


def _has_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ValueError:  # closed
        return False


def _find_program(plugin: Plugin, environ: Mapping[str, str]) -> str:
    import shutil  # slow to import because of its archive formats

    found = shutil.which(plugin.command, path=environ.get('PATH', os.defpath))
    if found is None:
        where = 'exists and is executable' if os.path.dirname(plugin.command) else 'is in the PATH'
        hint = f'\n{plugin.install_hint.strip()}' if plugin.install_hint.strip() else ''
        raise PluginError(
            f'The exec plugin {plugin.command!r} is not found: check that it {where}.{hint}'
        )

    return found


def _run(
    plugin: Plugin,
    command: Sequence[str],
    variables: Mapping[str, str],
    is_interactive: bool,
    timeout: float,
) -> bytes:
    try:
        # An interactive program talks to the user in the terminal. Others cannot, and are killed
        # with their children.
        process = subprocess.Popen(
            command,
            env=dict(variables),
            stdout=subprocess.PIPE,
            stdin=None if is_interactive else subprocess.DEVNULL,
            stderr=None if is_interactive else subprocess.PIPE,
            start_new_session=not is_interactive,
        )
    except (OSError, ValueError) as error:
        raise PluginError(f'The exec plugin {plugin.command!r} does not start: {error}.') from None

    def kill() -> None:
        _kill(process, with_children=not is_interactive)

    outputs = [_Output(process.stdout, kill), _Output(process.stderr)]
    with process:
        is_ended = _wait(process, outputs, timeout)
        if not is_ended:
            kill()
        for output in outputs:
            output.thread.join(KILLING_TIMEOUT)

    stdout, stderr = outputs
    if stdout.is_excessive:
        raise PluginError(
            f'The exec plugin {plugin.command!r} has printed more than {OUTPUT_LIMIT} bytes, and '
            'is stopped. Run it by hand to see, and check its version and its arguments.'
        )

    if stderr.content:
        logger.debug(
            'The exec plugin %r has complained: %s', plugin.command, _quote_tail(stderr.content)
        )

    if not is_ended:
        raise PluginError(
            f'The exec plugin {plugin.command!r} has not finished in {timeout:g} seconds.'
        )

    if process.returncode != 0:
        hint = (
            ' It has complained: run it by hand, or see the log at the debug level.'
            if stderr.content
            else ''
        )
        raise PluginError(
            f'The exec plugin {plugin.command!r} has failed with the code '
            f'{process.returncode}.{hint}'
        )

    return stdout.content


class _Output:
    """The output of a program, read by a thread until its end or the limit."""

    def __init__(self, pipe: IO[bytes] | None, stop: Callable[[], None] = lambda: None) -> None:
        self.content = b''
        self.is_excessive = False
        self._pipe = pipe
        self._stop = stop
        self.thread = threading.Thread(target=self._read, name='kopf exec plugin', daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            while self._pipe is not None and (chunk := os.read(self._pipe.fileno(), _CHUNK)):
                self._take(chunk)
        except (OSError, ValueError):  # closed, as its reader is no longer awaited
            pass

    def _take(self, chunk: bytes) -> None:
        room = OUTPUT_LIMIT - len(self.content)
        self.content += chunk[:room]
        if len(chunk) > room and not self.is_excessive:
            self.is_excessive = True
            self._stop()


def _wait(process: subprocess.Popen[bytes], outputs: Sequence[_Output], timeout: float) -> bool:
    """Wait until the program ends and its output is read; return false after the timeout."""
    deadline = time.monotonic() + timeout
    for output in outputs:
        output.thread.join(max(0.0, deadline - time.monotonic()))
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False

    return not any(output.thread.is_alive() for output in outputs)


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
    return text[-_QUOTED:]
