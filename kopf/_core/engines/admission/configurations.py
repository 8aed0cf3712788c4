"""
Configurations: what must be in the webhook configurations of the cluster. Nothing is requested.
"""

import urllib.parse
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kopf._cogs.structs import references, reviews, selectors
from kopf._core.engines.admission import paths
from kopf._core.intents import causes, filters, handlers

GROUP = 'admissionregistration.k8s.io'
VERSION = 'v1'
TIMEOUT = 30
"""Seconds for a webhook to respond, the most that the API accepts."""

OPERATIONS: Sequence[reviews.Operation] = ('CREATE', 'UPDATE', 'DELETE', 'CONNECT')

RESOURCES: Mapping[causes.WebhookType, references.Resource] = {
    causes.WebhookType.VALIDATING: references.Resource(
        GROUP,
        VERSION,
        'validatingwebhookconfigurations',
        kind='ValidatingWebhookConfiguration',
        namespaced=False,
    ),
    causes.WebhookType.MUTATING: references.Resource(
        GROUP,
        VERSION,
        'mutatingwebhookconfigurations',
        kind='MutatingWebhookConfiguration',
        namespaced=False,
    ),
}

Reviewed = Mapping[selectors.Selector, Collection[references.Resource]]
"""The resources whose requests are reviewed, by selector."""

Record = Mapping[str, Any]
"""One webhook of a configuration."""

Records = Mapping[causes.WebhookType, Sequence[Record]]


def build_records(
    webhooks: Sequence[paths.Webhook],
    reviewed: Reviewed,
    client: reviews.WebhookClientConfig,
    name: str,
) -> Records:
    """
    Build all records of both configurations; webhooks whose resources do not exist are left out.
    """
    return {
        type: [
            build_record(webhook, rules, client, name)
            for webhook in webhooks
            if webhook.traits.type is type and (rules := build_rules(webhook, reviewed))
        ]
        for type in causes.WebhookType
    }


def build_configuration(
    type: causes.WebhookType, name: str, records: Sequence[Record]
) -> Mapping[str, Any]:
    """Build a whole configuration, in case it is absent."""
    resource = RESOURCES[type]
    return {
        'apiVersion': resource.api_version,
        'kind': resource.kind,
        'metadata': {'name': name},
        'webhooks': records,
    }


def get_records(configuration: Mapping[str, Any]) -> Sequence[Record]:
    """Get the records of a configuration as returned by the API, with all defaults."""
    return configuration.get('webhooks') or []


def list_differences(stored: Sequence[Record], found: Sequence[Record] | None) -> list[str]:
    """
    Describe how others have changed the records since they were stored; empty if they are the same.

    Only the names of webhooks and fields are listed: the values can be secret. If the operator has
    no certificate in its client config, the certificates set by others are ignored.
    """
    if found is None:
        return ['it is deleted']

    before, after = (
        {record.get('name', ''): record for record in records} for records in (stored, found)
    )
    differences = [
        *(f'{name!r} is absent' for name in before if name not in after),
        *(f'{name!r} is added' for name in after if name not in before),
    ]
    for name in (name for name in before if name in after):
        fields = _list_fields(before[name], after[name])
        if fields:
            differences.append(f'{name!r} differs in {", ".join(fields)}')

    if not differences and [*before] != [*after]:
        differences.append('the order is different')
    return differences


def _list_fields(before: Record, after: Record) -> list[str]:
    """List the fields that differ; the fields of the client config are compared separately."""
    ours = before.get('clientConfig') or {}
    theirs = after.get('clientConfig') or {}
    fields = [
        field
        for field in sorted(before.keys() | after.keys())
        if field != 'clientConfig' and before.get(field) != after.get(field)
    ]

    return fields + [
        f'clientConfig.{field}'
        for field in sorted(ours.keys() | theirs.keys())
        if ours.get(field) != theirs.get(field) and (field != 'caBundle' or ours.get(field))
    ]


def build_record(
    webhook: paths.Webhook,
    rules: Sequence[Mapping[str, Any]],
    client: reviews.WebhookClientConfig,
    name: str,
) -> Record:
    traits = webhook.traits
    return {
        'name': f'{webhook.slug}.{name}',
        'sideEffects': 'NoneOnDryRun' if traits.has_side_effects else 'None',
        'failurePolicy': 'Ignore' if traits.ignores_failures else 'Fail',
        'matchPolicy': 'Equivalent',
        'timeoutSeconds': TIMEOUT,
        'admissionReviewVersions': ['v1', 'v1beta1'],
        'clientConfig': build_client_config(webhook, client),
        'rules': rules,
        **({'objectSelector': build_object_selector(traits.labels)} if traits.labels else {}),
        **({'reinvocationPolicy': 'Never'} if traits.type is causes.WebhookType.MUTATING else {}),
    }


def build_client_config(
    webhook: paths.Webhook, client: reviews.WebhookClientConfig
) -> Mapping[str, Any]:
    """Build the client config of this webhook: the operator's one with the path of the webhook."""
    config: dict[str, Any] = {key: value for key, value in client.items() if value is not None}
    if 'url' in config:
        config['url'] = f'{config["url"].rstrip("/")}/{urllib.parse.quote(webhook.id)}'
    if 'service' in config:
        service = {key: value for key, value in config['service'].items() if value is not None}
        path = service.get('path', '').rstrip('/')
        is_acceptable = all(paths.build_slug(part) == part for part in webhook.id.split('/'))
        config['service'] = {
            **service,
            'path': f'{path}/{webhook.id if is_acceptable else webhook.slug}',
        }

    return config


def build_object_selector(requirements: Sequence[paths.Requirement]) -> Mapping[str, Any]:
    return {
        'matchExpressions': [
            {'key': key, 'operator': operator, **({'values': list(values)} if values else {})}
            for key, operator, values in requirements
        ]
    }


def build_rules(webhook: paths.Webhook, reviewed: Reviewed) -> list[Mapping[str, Any]]:
    """List the unique rules of the webhook, always in the same order."""
    rules: list[Mapping[str, Any]] = []
    for handler in webhook.handlers:
        resources = reviewed.get(handler.selector, ()) if handler.selector is not None else ()
        for resource in sorted(resources, key=tuple):
            rule = _build_rule(handler, resource)
            if rule not in rules:
                rules.append(rule)

    return rules


def _build_rule(
    handler: handlers.WebhookHandler, resource: references.Resource
) -> Mapping[str, Any]:
    operations = [
        operation for operation in OPERATIONS if filters.match_operation(handler, operation)
    ]
    return {
        'apiGroups': [resource.group],
        'apiVersions': [resource.version],
        'resources': [
            resource.plural
            if handler.subresource is None
            else f'{resource.plural}/{handler.subresource}'
        ],
        'operations': ['*'] if len(operations) == len(OPERATIONS) else operations,
        'scope': '*',
    }
