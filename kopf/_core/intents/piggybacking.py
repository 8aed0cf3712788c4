"""
Piggybacking: the built-in ways of logging in, for login handlers and instead of them.

Functions named ``login_via_...`` use the credentials of other Kubernetes libraries, and work only
if the libraries are installed. Functions named ``login_with_...`` read the usual places directly.
Each returns `None` where it is not applicable, and raises `LoginError` where it is applicable but
has failed, for any error that the library raises on its import or later.
"""

import dataclasses
import datetime
import logging
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from kopf._cogs.helpers import execs, kubeconfigs, tokens
from kopf._cogs.structs import credentials
from kopf._core.intents import foreign_libraries

SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
"""The directory with the pod's service account token, the cluster's CA, and the namespace."""

PRIORITY_OF_KUBECONFIG = 10
PRIORITY_OF_CLIENT = 10
PRIORITY_OF_ASYNC_CLIENT = 15
PRIORITY_OF_PYKUBE = 20
PRIORITY_OF_SERVICE_ACCOUNT = 20

_DEFAULT_SERVER = 'https://kubernetes.default.svc'

LoginFn: TypeAlias = Callable[..., Any]
Logger: TypeAlias = 'logging.Logger | logging.LoggerAdapter[Any]'


class NetworkingSettings(Protocol):
    @property
    def trust_env(self) -> bool: ...


class Settings(Protocol):
    """The operator's settings needed for the logins."""

    @property
    def networking(self) -> NetworkingSettings: ...


def list_default_logins() -> tuple[LoginFn, ...]:
    """
    Return the login functions for when no login handlers are declared.

    These are for all installed libraries (the asynchronous client only if the synchronous one is
    absent), and if there are none, for the usual places.
    """
    logins: list[LoginFn] = []
    if foreign_libraries.is_installed('pykube'):
        logins.append(login_via_pykube)
    if foreign_libraries.is_installed('kubernetes'):
        logins.append(login_via_client)
    elif foreign_libraries.is_installed('kubernetes_asyncio'):
        logins.append(login_via_async_client)

    return tuple(logins) or (login_with_service_account, login_with_kubeconfig)


def list_fallback_logins() -> tuple[tuple[LoginFn, ...], ...]:
    """
    Return the login functions for when the default ones return nothing, in groups to try in order.

    An installed library can still be broken, or refuse the configuration.
    """
    if login_with_kubeconfig in list_default_logins():
        return ()

    groups: list[tuple[LoginFn, ...]] = [(login_with_service_account, login_with_kubeconfig)]
    if foreign_libraries.is_installed('kubernetes') and foreign_libraries.is_installed(
        'kubernetes_asyncio'
    ):
        groups.insert(0, (login_via_async_client,))

    return tuple(groups)


def build_login_error(attempts: Mapping[str, BaseException | None]) -> credentials.LoginError:
    """
    Explain that all attempts, by the ids of handlers, have failed or returned nothing (`None`).
    """
    current = os.environ.get('KUBECONFIG')
    lines = [
        f'  {name}: '
        f'{"not applicable here" if error is None else str(error) or type(error).__name__}'
        for name, error in attempts.items()
    ]
    return credentials.LoginError(
        '\n'.join(
            [
                'Cannot log in to the cluster. Tried:'
                if lines
                else 'Cannot log in to the cluster: nothing to try.',
                *lines,
                f'Set KUBECONFIG {f"(now: {current}) " if current else ""}to a kubeconfig, '
                'or put it in ~/.kube/config, or run in a pod with a service account, '
                'or declare a handler with @kopf.on.login(). To try it with no cluster: kopf run '
                '--sandbox.',
            ]
        )
    )


def login_with_service_account(
    *, settings: Settings | None = None, **_: Any
) -> credentials.ConnectionInfo | None:
    """
    Log in with the service account of the pod; outside of pods, return nothing.

    The credentials expire soon, so that the token is read again, and its rotation causes no
    failures.
    """
    directory = pathlib.Path(SERVICE_ACCOUNT)
    token = _read_text(directory / 'token')
    if token is None:
        return None
    if not token:
        raise credentials.LoginError(
            f'The token of the service account is empty: see {directory / "token"}.'
        )

    authority = directory / 'ca.crt'
    return credentials.ConnectionInfo(
        server=_build_server(os.environ),
        ca_path=str(authority) if authority.exists() else None,
        token=token,
        default_namespace=_read_text(directory / 'namespace') or None,
        priority=PRIORITY_OF_SERVICE_ACCOUNT,
        expiration=tokens.choose_rereading(token, _read_clock()),
        trust_env=_get_trust_env(settings),
    )


def login_with_kubeconfig(
    *, settings: Settings | None = None, **_: Any
) -> credentials.ConnectionInfo | None:
    """
    Log in with the current context of the kubeconfig: of ``$KUBECONFIG``, or of ``~/.kube/config``.

    Exec plugins are run each time, for up to a minute. If none of the files exist, return nothing.
    """
    try:
        kubeconfig = kubeconfigs.read_kubeconfig(kubeconfigs.list_paths(os.environ))
        if kubeconfig is None:
            return None
        return _build_info(
            kubeconfigs.select_access(kubeconfig), trust_env=_get_trust_env(settings)
        )
    except (kubeconfigs.KubeconfigError, execs.PluginError, ValueError) as error:
        raise credentials.LoginError(str(error)) from None


def login_via_client(
    *, logger: Logger, settings: Settings | None = None, **_: Any
) -> credentials.ConnectionInfo | None:
    """
    Log in as the official client ``kubernetes`` does, and leave it configured for use in handlers.

    Proxies are left to the client itself.
    """
    config = foreign_libraries.import_module('kubernetes', 'kubernetes.config')
    client = foreign_libraries.import_module('kubernetes', 'kubernetes.client')
    if config is None or client is None:
        return None

    try:
        config.load_incluster_config()
        is_inside = True
    except Exception as inner:
        try:
            with foreign_libraries.muted():
                config.load_kube_config(config_file=_get_kubeconfig())
            is_inside = False
        except Exception as outer:
            raise foreign_libraries.build_absence_error(
                'kubernetes', inner, outer, kubeconfig=_get_kubeconfig()
            ) from None

    logger.debug(
        'The client library is configured %s.',
        'in the cluster' if is_inside else 'by the kubeconfig',
    )
    try:
        return _extract(
            client.Configuration.get_default_copy(),
            PRIORITY_OF_CLIENT,
            _get_trust_env(settings),
            place=_find_place(config, is_inside),
        )
    except Exception as error:
        raise foreign_libraries.build_failure('kubernetes', error) from None


async def login_via_async_client(
    *, logger: Logger, settings: Settings | None = None, **_: Any
) -> credentials.ConnectionInfo | None:
    """Log in as ``kubernetes_asyncio`` does, and leave it configured for use in handlers."""
    config = foreign_libraries.import_module('kubernetes_asyncio', 'kubernetes_asyncio.config')
    client = foreign_libraries.import_module('kubernetes_asyncio', 'kubernetes_asyncio.client')
    if config is None or client is None:
        return None

    try:
        config.load_incluster_config()
        is_inside = True
    except Exception as inner:
        try:
            with foreign_libraries.muted():
                await config.load_kube_config(config_file=_get_kubeconfig())
            is_inside = False
        except Exception as outer:
            raise foreign_libraries.build_absence_error(
                'kubernetes_asyncio', inner, outer, kubeconfig=_get_kubeconfig()
            ) from None

    logger.debug(
        'The async client is configured %s.', 'in the cluster' if is_inside else 'by the kubeconfig'
    )
    try:
        loaded = client.Configuration.get_default_copy()
        return _extract(
            loaded,
            PRIORITY_OF_ASYNC_CLIENT,
            _get_trust_env(settings),
            proxy_url=loaded.proxy,
            place=_find_place(config, is_inside),
        )
    except Exception as error:
        raise foreign_libraries.build_failure('kubernetes_asyncio', error) from None


def login_via_pykube(
    *, logger: Logger, settings: Settings | None = None, **_: Any
) -> credentials.ConnectionInfo | None:
    """Log in as ``pykube-ng`` does, with its authentication providers and plugins."""
    pykube = foreign_libraries.import_module('pykube', 'pykube')
    http = foreign_libraries.import_module('pykube', 'pykube.http')
    if pykube is None or http is None:
        return None

    try:
        config = pykube.KubeConfig.from_service_account()
        is_inside = True
        logger.debug('Pykube is configured in the cluster.')
    except Exception as inner:
        try:
            config = pykube.KubeConfig.from_file(_get_kubeconfig())
            is_inside = False
            logger.debug('Pykube is configured by the kubeconfig.')
        except Exception as outer:
            raise foreign_libraries.build_absence_error(
                'pykube', inner, outer, kubeconfig=_get_kubeconfig()
            ) from None

    try:
        return _extract_pykube(http, config, _get_trust_env(settings), is_inside=is_inside)
    except Exception as error:
        raise foreign_libraries.build_failure('pykube', error) from None


def _build_info(access: kubeconfigs.Access, *, trust_env: bool) -> credentials.ConnectionInfo:
    cluster = access.cluster
    user = access.user
    token, expiration = _read_token(user)
    issued = _issue_credentials(access, token)
    certificate_data = issued.certificate or _get_text(user, 'client-certificate-data')
    private_key_data = issued.private_key or _get_text(user, 'client-key-data')
    ca_data = _get_text(cluster, 'certificate-authority-data')

    return credentials.ConnectionInfo(
        server=access.server,
        ca_data=ca_data,
        ca_path=_get_path(cluster, 'certificate-authority', data=ca_data),
        insecure=cluster.get_flag('insecure-skip-tls-verify') or None,
        username=_get_text(user, 'username'),
        password=_get_text(user, 'password'),
        token=token or issued.token or None,
        certificate_data=certificate_data,
        certificate_path=_get_path(user, 'client-certificate', data=certificate_data),
        private_key_data=private_key_data,
        private_key_path=_get_path(user, 'client-key', data=private_key_data),
        default_namespace=_get_text(access.context, 'namespace'),
        context=access.context.name,
        proxy_url=_get_text(cluster, 'proxy-url'),
        tls_server_name=_get_text(cluster, 'tls-server-name'),
        priority=PRIORITY_OF_KUBECONFIG,
        expiration=issued.expiration or expiration,
        trust_env=trust_env,
    )


def _issue_credentials(access: kubeconfigs.Access, token: str) -> execs.Issued:
    """Run the exec plugin of the user, if there is one, unless the user has other credentials."""
    if access.plugin is None:
        return execs.Issued()
    if token or access.user.get_text('username'):
        return execs.Issued()
    info = kubeconfigs.build_cluster_info(access.cluster, access.server)
    return execs.run_plugin(access.plugin, info, environ=os.environ)


def _get_text(section: kubeconfigs.Section, key: str) -> str | None:
    return section.get_text(key) or None


def _get_path(section: kubeconfigs.Section, key: str, *, data: str | None) -> str | None:
    """Get the path of a file unless its content is given."""
    return None if data else section.get_path(key) or None


def _read_token(user: kubeconfigs.Section) -> tuple[str, datetime.datetime | None]:
    """Get the token of the user: first from the file, which will be read again soon."""
    token = user.get_text('token')
    if user.get_text('tokenFile'):
        try:
            content = kubeconfigs.read_bytes(user, 'tokenFile').decode('utf-8', 'replace').strip()
        except kubeconfigs.KubeconfigError:
            if not token:
                raise
        else:
            return content or token, tokens.choose_rereading(content, _read_clock())

    has_other_ways = user.get_text('username') or user.get_mapping('exec')
    return token or ('' if has_other_ways else _read_provided_token(user)), None


def _read_provided_token(user: kubeconfigs.Section) -> str:
    """
    Get the token stored by an auth provider; the protocols of the providers are not supported.
    """
    if not user.get_mapping('auth-provider'):
        return ''

    config = user.get_mapping('auth-provider').get('config')
    token = (
        (config.get('id-token') or config.get('access-token')) if isinstance(config, dict) else None
    )
    if not isinstance(token, str):
        raise kubeconfigs.KubeconfigError(
            f'The auth-provider in the {user} has no token yet, and cannot be asked for it: '
            f'replace it by an exec plugin, or install pykube-ng or kubernetes.'
        )
    return token


def _extract(
    config: Any, priority: int, trust_env: bool, *, place: '_Place', proxy_url: str | None = None
) -> credentials.ConnectionInfo:
    """Extract the connection info from the configuration of one of the official clients."""
    key = 'BearerToken' if config.api_key.get('BearerToken') else 'authorization'
    header = f'{config.api_key_prefix.get(key) or ""} {config.api_key.get(key) or ""}'
    scheme, token = _split_header(header)

    return credentials.ConnectionInfo(
        server=config.host,
        ca_path=config.ssl_ca_cert or None,
        insecure=not config.verify_ssl or None,
        username=config.username or None,
        password=config.password or None,
        scheme=scheme,
        token=token,
        certificate_path=config.cert_file or None,
        private_key_path=config.key_file or None,
        default_namespace=place.namespace,
        context=place.context,
        proxy_url=proxy_url,
        tls_server_name=getattr(config, 'tls_server_name', None) or None,
        priority=priority,
        expiration=tokens.choose_rereading(token, _read_clock())
        if token and place.has_token_file
        else None,
        trust_env=trust_env,
    )


def _extract_pykube(
    http: Any, config: Any, trust_env: bool, *, is_inside: bool
) -> credentials.ConnectionInfo:
    """
    Let the library authenticate a request that is never sent, and extract the credentials from it.
    """
    server = config.cluster['server']
    request = http.requests.Request('GET', server).prepare()
    adapter = http.KubernetesHTTPAdapter(config)
    adapter._setup_request_auth(config, request, {})
    scheme, token = _split_header(request.headers.get('Authorization') or '')
    issued = [
        pathlib.Path(file.name).read_bytes() if file else None
        for file in (adapter.cert, adapter.key)
    ]
    own = [_get_bytes(config.user, 'client-certificate'), _get_bytes(config.user, 'client-key')]
    certificate, private_key = issued if issued[0] and not own[0] else own
    ca_path = os.environ.get('PYKUBE_SSL_CERTIFICATE_AUTHORITY')
    ca_data = _get_bytes(config.cluster, 'certificate-authority')

    return credentials.ConnectionInfo(
        server=server,
        ca_path=ca_path,
        ca_data=None if ca_path else ca_data,
        insecure=config.cluster.get('insecure-skip-tls-verify') or None,
        scheme=scheme,
        token=token,
        certificate_data=certificate,
        private_key_data=private_key,
        default_namespace=config.namespace,
        context=getattr(config, 'current_context', None),
        proxy_url=config.cluster.get('proxy-url') or None,
        tls_server_name=config.cluster.get('tls-server-name') or None,
        priority=PRIORITY_OF_PYKUBE,
        expiration=tokens.choose_rereading(token, _read_clock()) if token and is_inside else None,
        trust_env=trust_env,
    )


def _get_bytes(values: Mapping[str, Any], key: str) -> bytes | None:
    found = values.get(key)
    raw: bytes | None = found.bytes() if found is not None else None
    return raw


def _split_header(header: str) -> tuple[str | None, str | None]:
    """
    Split the value of ``Authorization`` into the scheme and the token; a single word is a token.
    """
    words = header.split(maxsplit=1)
    if len(words) < 2:
        return None, words[0] if words else None
    return 'Bearer' if words[0].lower() == 'bearer' else words[0], words[1].strip()


@dataclasses.dataclass(frozen=True)
class _Place:
    """The namespace and the context for which the libraries are configured."""

    namespace: str | None
    context: str | None = None
    # Whether the token is from a file that can be replaced at any time.
    has_token_file: bool = False


def _find_place(config: Any, is_inside: bool) -> _Place:
    if is_inside:
        return _Place(
            _read_text(pathlib.Path(SERVICE_ACCOUNT, 'namespace')) or None, has_token_file=True
        )
    _, active = config.list_kube_config_contexts(config_file=_get_kubeconfig())
    return _Place(active['context'].get('namespace') or None, active.get('name'), _has_token_file())


def _has_token_file() -> bool:
    """Return whether the user of the kubeconfig has the token in a file."""
    try:
        kubeconfig = kubeconfigs.read_kubeconfig(kubeconfigs.list_paths(os.environ))
        return kubeconfig is not None and bool(
            kubeconfigs.select_access(kubeconfig).user.get_text('tokenFile')
        )
    except kubeconfigs.KubeconfigError:  # the libraries interpret it in their own way
        return False


def _get_kubeconfig() -> str:
    """
    Return the kubeconfig for the libraries, which remember ``$KUBECONFIG`` as of their import.
    """
    return os.environ.get('KUBECONFIG') or kubeconfigs.DEFAULT_PATH


def _build_server(environ: Mapping[str, str]) -> str:
    host = environ.get('KUBERNETES_SERVICE_HOST')
    port = environ.get('KUBERNETES_SERVICE_PORT')
    if not host or not port:
        return _DEFAULT_SERVER
    return f'https://[{host}]:{port}' if ':' in host else f'https://{host}:{port}'


def _read_text(path: pathlib.Path) -> str | None:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise credentials.LoginError(
            f'Cannot read {path} of the service account: {error}.'
        ) from None


def _get_trust_env(settings: Settings | None) -> bool:
    return settings is not None and settings.networking.trust_env


def _read_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
