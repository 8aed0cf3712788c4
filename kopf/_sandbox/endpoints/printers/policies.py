"""
Tables of policies: roles and bindings, webhook configurations, and flow control.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from kopf._sandbox.endpoints.printers import cells

_LONGEST_EXPIRATION = (1 << 31) - 1  # it is a 32-bit number
_QUEUING_FIELDS = ('queues', 'handSize', 'queueLengthLimit')


def print_binding(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    subjects = cells.items(obj, 'subjects')
    return [
        cells.name(obj),
        f'{cells.text(obj, "roleRef", "kind")}/{cells.text(obj, "roleRef", "name")}',
        cells.age(obj, now),
        *(
            ', '.join(_show_subject(item) for item in subjects if item.get('kind') == kind)
            for kind in ('User', 'Group', 'ServiceAccount')
        ),
    ]


def _show_subject(subject: cells.Object) -> str:
    name = cells.text(subject, 'name')
    return (
        f'{cells.text(subject, "namespace")}/{name}'
        if subject.get('kind') == 'ServiceAccount'
        else name
    )


def print_webhooks(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), len(cells.items(obj, 'webhooks')), cells.age(obj, now)]


def print_validating_policy(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    rules = cells.items(obj, 'spec', 'validations')
    return [cells.name(obj), len(rules), _show_param_kind(obj), cells.age(obj, now)]


def print_mutating_policy(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    rules = cells.items(obj, 'spec', 'mutations')
    return [cells.name(obj), len(rules), _show_param_kind(obj), cells.age(obj, now)]


def _show_param_kind(obj: cells.Object) -> str:
    param = cells.dig(obj, 'spec', 'paramKind')
    return (
        cells.UNSET
        if param is None
        else f'{cells.text(param, "apiVersion")}/{cells.text(param, "kind")}'
    )


def print_policy_binding(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    param = cells.mapping(obj, 'spec', 'paramRef')
    name = cells.text(param, 'name')
    namespace = cells.text(param, 'namespace', default='*')
    shown = f'{namespace}/{name}' if name else cells.UNSET
    return [cells.name(obj), cells.text(obj, 'spec', 'policyName'), shown, cells.age(obj, now)]


def print_signing_request(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    expiration = cells.number(obj, 'spec', 'expirationSeconds')
    duration = datetime.timedelta(seconds=max(0, min(expiration, _LONGEST_EXPIRATION)))
    return [
        cells.name(obj),
        cells.age(obj, now),
        cells.text(obj, 'spec', 'signerName', default=cells.NONE),
        cells.text(obj, 'spec', 'username'),
        cells.human(duration) if expiration else cells.NONE,
        _show_signing_state(obj),
    ]


def _show_signing_state(obj: cells.Object) -> str:
    types = {
        cells.text(condition, 'type') for condition in cells.items(obj, 'status', 'conditions')
    }
    state = 'Denied' if 'Denied' in types else 'Approved' if 'Approved' in types else 'Pending'
    failed = ',Failed' if 'Failed' in types else ''
    return state + failed + (',Issued' if cells.text(obj, 'status', 'certificate') else '')


def print_flow_schema(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    dangling = cells.find_condition(cells.items(obj, 'status', 'conditions'), 'Dangling')
    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'priorityLevelConfiguration', 'name'),
        cells.number(obj, 'spec', 'matchingPrecedence'),
        cells.text(obj, 'spec', 'distinguisherMethod', 'type', default=cells.NONE),
        cells.age(obj, now),
        '?' if dangling is None else cells.text(dangling, 'status'),
    ]


def print_priority_level(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    limited = cells.mapping(obj, 'spec', 'limited')
    queuing = cells.mapping(limited, 'limitResponse', 'queuing')
    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'type'),
        cells.number(limited, 'nominalConcurrencyShares') if limited else cells.NONE,
        *(cells.number(queuing, field) if queuing else cells.NONE for field in _QUEUING_FIELDS),
        cells.age(obj, now),
    ]


def print_api_service(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    service = cells.dig(obj, 'spec', 'service')
    available = cells.find_condition(cells.items(obj, 'status', 'conditions'), 'Available')
    return [
        cells.name(obj),
        'Local'
        if service is None
        else f'{cells.text(service, "namespace")}/{cells.text(service, "name")}',
        _show_availability(available),
        cells.age(obj, now),
    ]


def _show_availability(condition: cells.Object | None) -> str:
    status = cells.text(condition, 'status')
    reason = cells.text(condition, 'reason')
    if condition is None:
        return 'Unknown'
    return f'{status} ({reason})' if reason and status != 'True' else status


def _define_binding(kind: str) -> cells.Printer:
    return cells.Printer(
        [
            cells.NAME,
            cells.column('Role', 'The role that is granted.'),
            cells.AGE,
            cells.wide('Users', f'The users in the {kind}.'),
            cells.wide('Groups', f'The groups in the {kind}.'),
            cells.wide('ServiceAccounts', f'The service accounts in the {kind}.'),
        ],
        print_binding,
    )


_WEBHOOKS = cells.Printer(
    [
        cells.NAME,
        cells.column('Webhooks', 'How many webhooks there are.', 'integer'),
        cells.AGE,
    ],
    print_webhooks,
)
_PARAM_KIND = cells.column('ParamKind', 'The kind of objects with parameters for the policy.')
_POLICY_BINDING = cells.Printer(
    [
        cells.NAME,
        cells.column('PolicyName', 'The policy that is bound.'),
        cells.column('ParamRef', 'The object with parameters for the policy.'),
        cells.AGE,
    ],
    print_policy_binding,
)

PRINTERS = {
    ('rbac.authorization.k8s.io', 'RoleBinding'): _define_binding('role binding'),
    ('rbac.authorization.k8s.io', 'ClusterRoleBinding'): _define_binding('cluster role binding'),
    ('admissionregistration.k8s.io', 'MutatingWebhookConfiguration'): _WEBHOOKS,
    ('admissionregistration.k8s.io', 'ValidatingWebhookConfiguration'): _WEBHOOKS,
    ('admissionregistration.k8s.io', 'ValidatingAdmissionPolicy'): cells.Printer(
        [
            cells.NAME,
            cells.column('Validations', 'How many rules there are.', 'integer'),
            _PARAM_KIND,
            cells.AGE,
        ],
        print_validating_policy,
    ),
    ('admissionregistration.k8s.io', 'MutatingAdmissionPolicy'): cells.Printer(
        [
            cells.NAME,
            cells.column('Mutations', 'How many rules there are.', 'integer'),
            _PARAM_KIND,
            cells.AGE,
        ],
        print_mutating_policy,
    ),
    ('admissionregistration.k8s.io', 'ValidatingAdmissionPolicyBinding'): _POLICY_BINDING,
    ('admissionregistration.k8s.io', 'MutatingAdmissionPolicyBinding'): _POLICY_BINDING,
    ('certificates.k8s.io', 'CertificateSigningRequest'): cells.Printer(
        [
            cells.NAME,
            cells.AGE,
            cells.column('SignerName', 'Who is asked to sign.'),
            cells.column('Requestor', 'Who has asked.'),
            cells.column('RequestedDuration', 'For how long the certificate is wanted.'),
            cells.column('Condition', 'The state of the request.'),
        ],
        print_signing_request,
    ),
    ('flowcontrol.apiserver.k8s.io', 'FlowSchema'): cells.Printer(
        [
            cells.NAME,
            cells.column('PriorityLevel', 'The priority level of the requests.'),
            cells.column('MatchingPrecedence', 'The order of matching: the lower, the earlier.'),
            cells.column('DistinguisherMethod', 'How the requests are split to flows.'),
            cells.AGE,
            cells.column('MissingPL', 'Whether the priority level does not exist.'),
        ],
        print_flow_schema,
    ),
    ('flowcontrol.apiserver.k8s.io', 'PriorityLevelConfiguration'): cells.Printer(
        [
            cells.NAME,
            cells.column('Type', 'Whether the requests are limited.'),
            cells.column('NominalConcurrencyShares', 'The share of the concurrency.'),
            cells.column('Queues', 'How many queues there are.'),
            cells.column('HandSize', 'How many queues a flow uses.'),
            cells.column('QueueLengthLimit', 'How many requests wait in one queue.'),
            cells.AGE,
        ],
        print_priority_level,
    ),
    ('apiregistration.k8s.io', 'APIService'): cells.Printer(
        [
            cells.NAME,
            cells.column('Service', 'The service of the API.'),
            cells.column('Available', 'Whether the API is served.'),
            cells.AGE,
        ],
        print_api_service,
    ),
}
