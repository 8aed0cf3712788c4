"""
Rules of webhooks' addresses: the requirements for client configs, and for the conversion of CRDs.
"""

import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.meta import errors, naming

Problems = Iterator[errors.FieldError]

_STRATEGIES: Final = ('None', 'Webhook')
_REVIEWS: Final = ('v1', 'v1beta1')
_FORM: Final = '; desired format: https://host[/path]'
_NOT_WEBHOOK: Final = 'should not be set when strategy is not set to Webhook'


def check_conversion(conversion: Mapping[str, Any], path: str) -> Problems:
    """Yield the problems of a CRD's conversion. The API reports other names of its fields."""
    strategy = conversion.get('strategy')
    webhook = _mapping(conversion.get('webhook'))
    client = webhook.get('clientConfig')
    reviews = webhook.get('conversionReviewVersions') or []

    if not strategy:
        yield errors.required(f'{path}.strategy')
    elif strategy not in _STRATEGIES:
        yield errors.not_supported(f'{path}.strategy', strategy, _STRATEGIES)

    if strategy != 'Webhook':
        if client is not None:
            yield errors.forbidden_field(f'{path}.webhookClientConfig', _NOT_WEBHOOK)
        if reviews:
            yield errors.forbidden_field(f'{path}.conversionReviewVersions', _NOT_WEBHOOK)
        return

    if client is None:
        yield errors.required(
            f'{path}.webhookClientConfig', 'required when strategy is set to Webhook'
        )
    else:
        yield from check_client(_mapping(client), f'{path}.webhookClientConfig')

    yield from _check_reviews(reviews, f'{path}.conversionReviewVersions')


def check_client(client: Mapping[str, Any], path: str) -> Problems:
    """Yield the problems of a webhook's address: a URL or a service."""
    url = client.get('url')
    service = client.get('service')
    if (url is None) == (service is None):
        yield errors.required(path, 'exactly one of url or service is required')
    elif url is not None:
        yield from check_url(str(url), f'{path}.url')
    else:
        yield from check_service(_mapping(service), f'{path}.service')


def check_url(url: str, path: str) -> Problems:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        yield errors.required(path, f'url must be a valid URL: parse "{url}": invalid URL{_FORM}')
        return

    user, _, host = parts.netloc.rpartition('@')
    if parts.scheme != 'https':
        yield errors.invalid_value(
            path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"
        )

    if not host:
        yield errors.invalid_value(path, '', f'host must be specified{_FORM}')
    if user:
        yield errors.invalid_value(path, user, 'user information is not permitted in the URL')
    if parts.fragment:
        yield errors.invalid_value(path, parts.fragment, 'fragments are not permitted in the URL')
    if parts.query:
        yield errors.invalid_value(
            path, parts.query, 'query parameters are not permitted in the URL'
        )


def check_service(service: Mapping[str, Any], path: str) -> Problems:
    port = service.get('port', 443)
    for name in ('name', 'namespace'):
        if not service.get(name):
            yield errors.required(f'{path}.{name}')

    if isinstance(port, int) and (problems := naming.check_port(port)):
        yield errors.invalid_value(
            f'{path}.port', port, f'port is not valid: {", ".join(problems)}'
        )

    yield from _check_path(str(service.get('path') or ''), f'{path}.path')


def _check_path(value: str, path: str) -> Problems:
    if value in ('', '/'):
        return

    if value == '//':
        yield errors.invalid_value(path, value, 'segment[0] may not be empty')
        return

    if not value.startswith('/'):
        yield errors.invalid_value(path, value, "must start with a '/'")
    for index, segment in enumerate(value[1:].removesuffix('/').split('/')):
        if not segment:
            yield errors.invalid_value(path, value, f'segment[{index}] may not be empty')
        for problem in naming.check_subdomain(segment) if segment else ():
            yield errors.invalid_value(path, value, f'segment[{index}]: {problem}')


def _check_reviews(reviews: Any, path: str) -> Problems:
    if not isinstance(reviews, list) or not reviews:
        yield errors.required(path)
        return

    for index, version in enumerate(reviews):
        if version in reviews[:index]:
            yield errors.invalid_value(f'{path}[{index}]', version, 'duplicate version')
            continue
        for problem in naming.check_old_label(str(version)):
            yield errors.invalid_value(f'{path}[{index}]', version, problem)

    if not any(version in _REVIEWS for version in reviews):
        yield errors.invalid_value(
            path, reviews, f'must include at least one of {", ".join(_REVIEWS)}'
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
