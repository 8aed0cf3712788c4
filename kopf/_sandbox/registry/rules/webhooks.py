"""
Webhooks: the configurations of admission webhooks.
"""

import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, naming
from kopf._sandbox.registry.rules import admission_policies, checks, entries, pod_defaults

GROUP: Final = 'admissionregistration.k8s.io'
_REVIEW_VERSIONS: Final = ('v1', 'v1beta1')
_OPERATIONS: Final = ('*', 'CONNECT', 'CREATE', 'DELETE', 'UPDATE')
_SIDE_EFFECTS: Final = ('None', 'NoneOnDryRun')
_FORM: Final = '; desired format: https://host[/path]'


def default_validating(obj: dict[str, Any]) -> None:
    for hook in obj.get('webhooks') or ():
        pod_defaults.fill(
            hook, {'failurePolicy': 'Fail', 'matchPolicy': 'Equivalent', 'timeoutSeconds': 10}
        )
        for name in ('namespaceSelector', 'objectSelector'):
            hook.setdefault(name, {})
        service = checks.dig(hook, 'clientConfig', 'service')
        if service is not None:
            pod_defaults.fill(service, {'port': 443})
        for rule in hook.get('rules') or ():
            pod_defaults.fill(rule, {'scope': '*'})


def default_mutating(obj: dict[str, Any]) -> None:
    default_validating(obj)
    for hook in obj.get('webhooks') or ():
        pod_defaults.fill(hook, {'reinvocationPolicy': 'Never'})


def _make_validator(*, mutating: bool) -> Callable[[entries.Object], entries.Problems]:
    def validate_configuration(obj: entries.Object) -> entries.Problems:
        problems = []
        names = set()
        for index, hook in enumerate(obj.get('webhooks') or ()):
            field = f'webhooks[{index}]'
            name = hook.get('name')
            problems += _validate_hook(hook, field, mutating=mutating)
            versions = hook.get('admissionReviewVersions') or []
            problems += _validate_versions(versions, f'{field}.admissionReviewVersions')
            if name and name in names:
                problems.append(errors.duplicate(f'{field}.name', name))
            names.add(name)

        return problems

    return validate_configuration


def _validate_hook(hook: entries.Object, field: str, *, mutating: bool) -> entries.Problems:
    problems = _validate_name(hook.get('name') or '', f'{field}.name')
    for index, rule in enumerate(hook.get('rules') or ()):
        problems += _validate_rule(rule, f'{field}.rules[{index}]')
    problems += checks.check_optional_enum(
        hook.get('failurePolicy'), f'{field}.failurePolicy', ('Fail', 'Ignore')
    )
    problems += checks.check_optional_enum(
        hook.get('matchPolicy'), f'{field}.matchPolicy', ('Equivalent', 'Exact')
    )
    if hook.get('sideEffects') is None:
        problems.append(
            errors.required(
                f'{field}.sideEffects', f'must specify one of {", ".join(_SIDE_EFFECTS)}'
            )
        )

    problems += checks.check_optional_enum(
        hook.get('sideEffects'), f'{field}.sideEffects', _SIDE_EFFECTS
    )
    timeout = hook.get('timeoutSeconds')
    if timeout is not None and not 1 <= timeout <= 30:
        problems.append(
            errors.invalid_value(
                f'{field}.timeoutSeconds',
                timeout,
                'the timeout value must be between 1 and 30 seconds',
            )
        )

    for name in ('namespaceSelector', 'objectSelector'):
        problems += checks.check_selector(hook.get(name), f'{field}.{name}')
    if mutating:
        problems += checks.check_optional_enum(
            hook.get('reinvocationPolicy'), f'{field}.reinvocationPolicy', ('IfNeeded', 'Never')
        )

    problems += _validate_client(hook.get('clientConfig') or {}, f'{field}.clientConfig')
    for index, condition in enumerate(hook.get('matchConditions') or ()):
        problems += _validate_condition(condition, f'{field}.matchConditions[{index}]')
    conditions = hook.get('matchConditions') or ()
    return problems + admission_policies.check_conditions(conditions, f'{field}.matchConditions')


def _validate_name(name: str, field: str) -> entries.Problems:
    if not name:
        return [errors.required(field)]
    if texts := naming.check_subdomain(name):
        return [errors.invalid_value(field, name, ','.join(texts))]
    if name.count('.') < 2:
        text = 'should be a domain with at least three segments separated by dots'
        return [errors.invalid_value(field, name, text)]

    return []


def _validate_rule(rule: entries.Object, field: str) -> entries.Problems:
    operations = rule.get('operations') or []
    problems = _validate_wildcard(operations, f'{field}.operations', 'operations')
    problems += [
        errors.not_supported(f'{field}.operations[{index}]', operation, _OPERATIONS)
        for index, operation in enumerate(operations)
        if operation not in _OPERATIONS
    ]
    problems += _validate_wildcard(rule.get('apiGroups') or [], f'{field}.apiGroups', 'API groups')
    problems += _validate_wildcard(
        rule.get('apiVersions') or [], f'{field}.apiVersions', 'API versions'
    )
    problems += [
        errors.required(f'{field}.apiVersions[{index}]')
        for index, version in enumerate(rule.get('apiVersions') or ())
        if not version
    ]
    problems += _validate_resources(rule.get('resources') or [], f'{field}.resources')

    return problems + checks.check_optional_enum(
        rule.get('scope'), f'{field}.scope', ('*', 'Cluster', 'Namespaced')
    )


def _validate_wildcard(values: list[str], field: str, named: str) -> entries.Problems:
    if not values:
        return [errors.required(field)]
    if len(values) > 1 and '*' in values:
        return [
            errors.invalid_value(
                field, values, f"if '*' is present, must not specify other {named}"
            )
        ]
    return []


def _validate_resources(resources: list[str], field: str) -> entries.Problems:
    if not resources:
        return [errors.required(field)]

    problems = []
    for index, text in enumerate(resources):
        problems += _validate_resource(text, resources[:index], f'{field}[{index}]')
    if '*/*' in resources and len(resources) > 1:
        text = "if '*/*' is present, must not specify other resources"
        problems.append(errors.invalid_value(field, resources, text))

    if '*' in resources and _is_single_resource(resources[-1]):
        text = "if '*' is present, must not specify other resources without subresources"
        problems.append(errors.invalid_value(field, resources, text))

    return problems


def _validate_resource(text: str, previous: Sequence[str], field: str) -> entries.Problems:
    """Check one resource; previous wildcards must not cover its subresource."""
    if not text:
        return [errors.required(field)]

    resource, slash, part = text.partition('/')
    if not slash:
        return []
    return [
        errors.invalid_value(field, text, f"if '{wildcard}' is present, must not specify {text}")
        for wildcard in (f'{resource}/*', f'*/{part}')
        if wildcard in previous
    ]


def _is_single_resource(text: str) -> bool:
    return '/' not in text and text != '*'


def _validate_client(client: entries.Object, field: str) -> entries.Problems:
    url = client.get('url')
    service = client.get('service')
    if (url is None) == (service is None):
        return [errors.required(field, 'exactly one of url or service is required')]
    if url is not None:
        return _validate_url(url, f'{field}.url')
    return _validate_service(service or {}, f'{field}.service')


def _validate_url(url: str, field: str) -> entries.Problems:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as e:
        return [errors.required(field, f'url must be a valid URL: {e}{_FORM}')]

    user = parts.netloc.rpartition('@')[0]
    problems = []
    if parts.scheme != 'https':
        problems.append(
            errors.invalid_value(
                field, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"
            )
        )

    if not parts.netloc:
        problems.append(errors.invalid_value(field, '', f'host must be specified{_FORM}'))
    if user:
        problems.append(
            errors.invalid_value(field, user, 'user information is not permitted in the URL')
        )

    if parts.fragment:
        problems.append(
            errors.invalid_value(field, parts.fragment, 'fragments are not permitted in the URL')
        )

    if parts.query:
        problems.append(
            errors.invalid_value(
                field, parts.query, 'query parameters are not permitted in the URL'
            )
        )

    return problems


def _validate_service(service: entries.Object, field: str) -> entries.Problems:
    problems = [
        errors.required(f'{field}.{name}')
        for name in ('name', 'namespace')
        if not service.get(name)
    ]
    port = service.get('port') or 0
    path = service.get('path') or '/'
    problems += [
        errors.invalid_value(f'{field}.port', port, f'port is not valid: {text}')
        for text in naming.check_port(port)
    ]
    if path == '/':
        return problems

    if not path.startswith('/'):
        problems.append(errors.invalid_value(f'{field}.path', path, "must start with a '/'"))
    for index, step in enumerate(path[1:].removesuffix('/').split('/')):
        texts = (
            [f': {text}' for text in naming.check_subdomain(step)]
            if step
            else [' may not be empty']
        )
        problems += [
            errors.invalid_value(f'{field}.path', path, f'segment[{index}]{text}') for text in texts
        ]

    return problems


def _validate_condition(condition: entries.Object, field: str) -> entries.Problems:
    problems = (
        []
        if (condition.get('expression') or '').strip()
        else [errors.required(f'{field}.expression')]
    )
    return problems + checks.check_required_name(
        condition.get('name'), f'{field}.name', naming.check_key
    )


def _validate_versions(versions: Sequence[str], field: str) -> entries.Problems:
    if not versions:
        return [errors.required(field, f'must specify one of {", ".join(_REVIEW_VERSIONS)}')]

    problems = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            problems.append(errors.invalid_value(f'{field}[{index}]', version, 'duplicate version'))
        else:
            problems += [
                errors.invalid_value(f'{field}[{index}]', version, text)
                for text in naming.check_old_label(version)
            ]

    if not any(version in _REVIEW_VERSIONS for version in versions):
        problems.append(
            errors.invalid_value(
                field, list(versions), f'must include at least one of {", ".join(_REVIEW_VERSIONS)}'
            )
        )

    return problems


RULES: Final = {
    (GROUP, 'ValidatingWebhookConfiguration'): entries.build_admission_rules(
        defaults=default_validating, validate=_make_validator(mutating=False)
    ),
    (GROUP, 'MutatingWebhookConfiguration'): entries.build_admission_rules(
        defaults=default_mutating, validate=_make_validator(mutating=True)
    ),
}
