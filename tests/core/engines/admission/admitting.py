"""
A reviewer with no operator around it, and reviews for it.
"""

import base64
import copy
import dataclasses
import datetime
import json

import kopf
from kopf._cogs.helpers import meters
from kopf._cogs.structs import references
from kopf._core.actions import execution
from kopf._core.engines.admission import reviewer

KEX = references.Resource(
    'kopf.dev', 'v1', 'kopfexamples', kind='KopfExample', singular='kopfexample'
)
PODS = references.Resource('', 'v1', 'pods', kind='Pod', singular='pod')


def build_object(uid=None, **fields):
    metadata = {
        'name': 'x',
        'namespace': 'ns',
        **({} if uid is None else {'uid': uid}),
        **fields.pop('metadata', {}),
    }
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': metadata,
        'spec': {'field': 1},
        **fields,
    }


def build_review(new=..., old=None, *, resource=KEX, version='v1', **request):
    """
    Build a review: of a creation, if there is no old object; of a deletion, if there is no new one.
    """
    new = build_object() if new is ... else new
    operation = 'CREATE' if old is None else 'DELETE' if new is None else 'UPDATE'
    return {
        'apiVersion': f'admission.k8s.io/{version}',
        'kind': 'AdmissionReview',
        'request': {
            'uid': 'request-uid',
            'operation': operation,
            'object': new,
            'oldObject': old,
            'dryRun': False,
            'resource': {
                'group': resource.group,
                'version': resource.version,
                'resource': resource.plural,
            },
            'userInfo': {'username': 'user', 'uid': 'user-uid', 'groups': ['group']},
            **request,
        },
    }


def read_patch(response):
    """Get the operations of the JSON patch; none if there is no patch."""
    payload = response['response']
    assert ('patch' in payload) is ('patchType' in payload)
    return json.loads(base64.b64decode(payload['patch'])) if 'patch' in payload else None


@dataclasses.dataclass
class Scope:
    """The resources that exist: each selector means all those that it matches."""

    registry: kopf.OperatorRegistry
    resources: list = dataclasses.field(default_factory=lambda: [KEX, PODS])

    @property
    def reviewed(self):
        return {
            selector: [resource for resource in self.resources if selector.matches(resource)]
            for selector in self.registry.reviewed_selectors()
        }


class Memos:
    """The memos of the objects with these uids."""

    def __init__(self):
        self.by_uids = {}

    def get_memo(self, body, *, is_existing):
        known = self.by_uids.get((body.get('metadata') or {}).get('uid'))
        return known if is_existing and known is not None else copy.copy(kopf.Memo(common=True))


class Office:
    """A reviewer and all that it needs."""

    def __init__(self, **options):
        self.registry = kopf.OperatorRegistry()
        self.scope, self.memos, self.meter = Scope(self.registry), Memos(), meters.Meter()
        self.env = execution.Environment(
            settings=kopf.OperatorSettings(),
            meter=self.meter,
            now=lambda: datetime.datetime.now(datetime.UTC),
        )
        self.reviewer = reviewer.Reviewer(
            self.registry,
            scope=self.scope,
            memos=self.memos,
            indices={'index': 'an index'},
            env=self.env,
            **options,
        )

    def validate(self, *args, **options):
        return kopf.on.validate(*(args or ['kopfexamples']), registry=self.registry, **options)

    def mutate(self, *args, **options):
        return kopf.on.mutate(*(args or ['kopfexamples']), registry=self.registry, **options)

    async def review(self, *args, webhook=None, headers=None, sslpeer=None, **kwargs):
        return await self.reviewer.review(
            build_review(*args, **kwargs), webhook=webhook, headers=headers, sslpeer=sslpeer
        )
