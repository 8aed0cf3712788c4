"""
Kubeconfigs: the clusters, and our identities there, as kubectl reads them.

When files are merged, the first one to define a name or the current context wins. Relative paths
are relative to the files that contain them. This module runs no programs and makes no requests:
exec plugins are only described. Errors name the file and the entry, and never quote the values.
"""

import base64
import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._cogs.helpers import execs

DEFAULT_PATH = '~/.kube/config'

_SECTIONS = {'clusters': 'cluster', 'users': 'user', 'contexts': 'context'}
_IMPERSONATION = ('as', 'as-uid', 'as-groups', 'as-user-extra')
_EXEC_EXTENSION = 'client.authentication.k8s.io/exec'


class KubeconfigError(Exception):
    """A kubeconfig cannot be read, or does not make sense."""


@dataclasses.dataclass(frozen=True)
class Section:
    """One named entry: a cluster, a user, or a context, with the file that defines it."""

    kind: str
    name: str
    path: pathlib.Path
    values: Mapping[str, Any] = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f'{self.kind} {self.name!r} of {self.path}'

    def get_text(self, key: str) -> str:
        """Return a string, or an empty one if there is none."""
        value = self.values.get(key)
        if value is None:
            return ''
        if not isinstance(value, str):
            raise KubeconfigError(
                f'The field {key!r} in the {self} must be a string: put it in quotes.'
            )
        return value.strip()

    def get_flag(self, key: str) -> bool:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise KubeconfigError(f'The field {key!r} in the {self} must be true or false.')
        return bool(value)

    def get_path(self, key: str) -> str:
        """Return an absolute path, or an empty string if there is none."""
        text = self.get_text(key)
        return str(self.path.absolute().parent / os.path.expanduser(text)) if text else ''

    def get_mapping(self, key: str) -> Mapping[str, Any]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise KubeconfigError(f'The field {key!r} in the {self} must be a mapping.')
        return value or {}

    def get_items(self, key: str) -> list[Any]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise KubeconfigError(f'The field {key!r} in the {self} must be a list.')
        return value or []


@dataclasses.dataclass(frozen=True)
class Kubeconfig:
    """All files merged; the entries are by kind (``cluster``, ``user``, ``context``) and name."""

    sections: Mapping[tuple[str, str], Section]
    current_context: str
    paths: tuple[pathlib.Path, ...]


@dataclasses.dataclass(frozen=True)
class Access:
    """The cluster and the user of one context; without a user, the access is anonymous."""

    context: Section
    cluster: Section
    user: Section
    server: str
    plugin: execs.Plugin | None


def list_paths(environ: Mapping[str, str]) -> list[pathlib.Path]:
    """Return the files to read, existing or not: by ``$KUBECONFIG``, or in the home directory."""
    listed = [path for path in environ.get('KUBECONFIG', '').split(os.pathsep) if path]
    return [
        pathlib.Path(os.path.expanduser(path)) for path in dict.fromkeys(listed or [DEFAULT_PATH])
    ]


def read_kubeconfig(paths: Iterable[pathlib.Path]) -> Kubeconfig | None:
    """Read and merge the existing files; ``None`` if there are none. Raises `KubeconfigError`."""
    contents = {path: content for path in paths if (content := _read_file(path)) is not None}
    return merge_contents(contents) if contents else None


def merge_contents(contents: Mapping[pathlib.Path, Mapping[str, Any]]) -> Kubeconfig:
    """Merge the parsed files; each entry is taken whole from the first file that defines it."""
    sections: dict[tuple[str, str], Section] = {}
    current_context = ''
    for path, content in contents.items():
        own: dict[tuple[str, str], Section] = {}
        for plural, kind in _SECTIONS.items():
            for section in _list_sections(path, content, plural, kind):
                if (kind, section.name) in own:
                    raise KubeconfigError(
                        f'The kubeconfig {path} has several {plural} named {section.name!r}.'
                    )
                own[kind, section.name] = section
        sections = {**own, **sections}
        root = Section('current-context', '', path, content)
        current_context = current_context or root.get_text('current-context')

    return Kubeconfig(sections, current_context, tuple(contents))


def select_access(kubeconfig: Kubeconfig) -> Access:
    """Return the entries of the current context. Raises `KubeconfigError` if any is unusable."""
    if not kubeconfig.current_context:
        raise KubeconfigError(
            f'There is no current-context in the kubeconfig {_join(kubeconfig.paths)}: '
            f'choose one with `kubectl config use-context NAME`.'
        )

    context = _find_section(
        kubeconfig, 'context', kubeconfig.current_context, 'the current-context'
    )
    cluster = _find_section(kubeconfig, 'cluster', context.get_text('cluster'), f'the {context}')
    username = context.get_text('user')
    user = (
        _find_section(kubeconfig, 'user', username, f'the {context}')
        if username
        else Section('user', '', context.path, {})
    )

    for key in _IMPERSONATION:
        if user.values.get(key):
            raise KubeconfigError(
                f'The {user} asks for impersonation (the field {key!r}), which is not supported: '
                f'use a context without impersonation.'
            )

    return Access(context, cluster, user, _build_server(cluster, user), _build_plugin(user))


def read_bytes(section: Section, key: str) -> bytes:
    """Read the file that a field refers to. Raises `KubeconfigError` if it cannot be read."""
    path = section.get_path(key)
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise KubeconfigError(
            f'Cannot read {path} for the field {key!r} in the {section}: {error.strerror or error}.'
        ) from None


def build_cluster_info(cluster: Section, server: str) -> dict[str, Any]:
    """
    Describe the cluster for exec plugins that request that. Raises `KubeconfigError` if its files
    cannot be read.
    """
    info: dict[str, Any] = {'server': server}
    for key in ('tls-server-name', 'certificate-authority-data', 'proxy-url'):
        if cluster.get_text(key):
            info[key] = cluster.get_text(key)

    for key in ('insecure-skip-tls-verify', 'disable-compression'):
        if cluster.get_flag(key):
            info[key] = True

    if 'certificate-authority-data' not in info and cluster.get_text('certificate-authority'):
        raw = read_bytes(cluster, 'certificate-authority')
        info['certificate-authority-data'] = base64.b64encode(raw).decode()

    for extension in cluster.get_items('extensions'):
        if isinstance(extension, dict) and extension.get('name') == _EXEC_EXTENSION:
            info['config'] = extension.get('extension')

    return info


def _read_file(path: pathlib.Path) -> Mapping[str, Any] | None:
    import yaml

    try:
        content = yaml.safe_load(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise KubeconfigError(
            f'Cannot read the kubeconfig {path}: {error.strerror or error}.'
        ) from None
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        # Any of these is raised for values of wrong types; their messages quote lines with secrets.
        mark = getattr(error, 'problem_mark', None)
        where = f' at the line {mark.line + 1}' if mark is not None else ''
        raise KubeconfigError(f'The kubeconfig {path} is not valid YAML{where}.') from None

    if content is not None and not isinstance(content, dict):
        raise KubeconfigError(f'The kubeconfig {path} must be a mapping, but it is not.')
    return content or {}


def _list_sections(
    path: pathlib.Path, content: Mapping[str, Any], plural: str, kind: str
) -> Iterable[Section]:
    items = content.get(plural) or []
    if not isinstance(items, list):
        raise KubeconfigError(f'The field {plural!r} in the kubeconfig {path} must be a list.')

    for index, item in enumerate(items):
        name = item.get('name') if isinstance(item, dict) else None
        values = item.get(kind) if isinstance(item, dict) else None
        if not isinstance(name, str) or not isinstance(values, dict | None):
            raise KubeconfigError(
                f'The item {index} of {plural!r} in the kubeconfig {path} must have a string '
                "'name' "
                f'and a mapping {kind!r}.'
            )
        yield Section(kind, name, path, values or {})


def _find_section(kubeconfig: Kubeconfig, kind: str, name: str, referrer: str) -> Section:
    if not name:
        raise KubeconfigError(f'There is no {kind} in {referrer}.')

    try:
        return kubeconfig.sections[kind, name]
    except KeyError:
        known = sorted(other for other_kind, other in kubeconfig.sections if other_kind == kind)
        raise KubeconfigError(
            f'There is no {kind} {name!r}, which {referrer} names, in the kubeconfig '
            f'{_join(kubeconfig.paths)}. There are: {", ".join(known) or "none"}.'
        ) from None


def _build_server(cluster: Section, user: Section) -> str:
    server = cluster.get_text('server')
    if not server:
        raise KubeconfigError(f'There is no server in the {cluster}.')

    if '://' not in server:
        authority = (
            'certificate-authority',
            'certificate-authority-data',
            'insecure-skip-tls-verify',
        )
        identity = ('client-certificate', 'client-certificate-data')
        is_secure = any(map(cluster.values.get, authority)) or any(map(user.values.get, identity))
        server = f'{"https" if is_secure else "http"}://{server}'

    return server.rstrip('/')


def _build_plugin(user: Section) -> execs.Plugin | None:
    if not user.get_mapping('exec'):
        return None

    section = Section('exec plugin of the user', user.name, user.path, user.get_mapping('exec'))
    command = section.get_text('command')
    args = section.get_items('args')
    env = section.get_items('env')
    if not all(isinstance(arg, str) for arg in args):
        raise KubeconfigError(f'The args of the {section} must be strings: put them in quotes.')
    if not all(
        isinstance(item, dict)
        and isinstance(item.get('name'), str)
        and isinstance(item.get('value'), str)
        for item in env
    ):
        raise KubeconfigError(
            f'The env of the {section} must be a list of names and values, which are strings.'
        )

    plugin = execs.Plugin(
        api_version=section.get_text('apiVersion'),
        command=section.get_path('command') if os.path.dirname(command) else command,
        args=tuple(args),
        env={item['name']: item['value'] for item in env},
        install_hint=section.get_text('installHint'),
        provide_cluster_info=section.get_flag('provideClusterInfo'),
        interactive_mode=section.get_text('interactiveMode') or 'IfAvailable',
    )
    return plugin


def _join(paths: Iterable[pathlib.Path]) -> str:
    return ', '.join(str(path) for path in paths)
