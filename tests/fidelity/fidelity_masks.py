"""
Masks: what cannot be the same on two servers is replaced by what must be.

Nothing is dropped: uids become numbers in the order of their appearance, and the versions of each
object too, so that two objects are still told from one, and a write that changes nothing from one
that does.
"""

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

import fidelity_talks

REASONS = {
    'uid': 'random; numbered per transcript',
    'version of an object': 'counted per cluster, with the writes of others; numbered per object',
    'version of a list': 'that of the last write in the whole cluster',
    'time': 'of the clock; only the format is kept',
    'age': 'of the clock; in the cells of tables',
    'generated name': 'the last five letters are random',
    'address': 'the servers and the webhooks are not at the same place',
    'certificate': 'the webhooks have their own authority for each server, and each server has its own',
    'order of field managers': 'by time, and within a second by names: it depends on when the second ends',
    'user': 'who administers the cluster is called differently',
    'periodic bookmarks': 'of the clock; they are skipped in streams, unless they are what is waited for',
    'continue token': 'opaque; only its presence is kept',
    'order of resources': 'in the discovery, it is that of the code of the server; they are compared by names',
    'order of errors': 'random for custom resources, as the fields are validated in a random order',
    'object in a text': 'printed as the server stores it, which neither clients nor people read',
    'versions in texts': 'as the versions themselves',
}
"""Everything that is masked, and why."""

UID = re.compile(r'\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b')
TIME = re.compile(r'\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)')
AGE = re.compile(r'\d+[smhd]')
TEXTS = (
    (
        re.compile(r'too old resource version: \d+ \(\d+\)'),
        'too old resource version: <version> (<version>)',
    ),
    (
        re.compile(r'Too large resource version: \d+, current: \d+'),
        'Too large resource version: <version>, current: <version>',
    ),
    (re.compile(r'\b(resourceVersion(?:=|%3D|":"))\d+'), r'\1<version>'),
    (re.compile(r'(ResourceVersion in (?:the precondition|record)) \(\d+\)'), r'\1 (<version>)'),
    (re.compile(r'Invalid value: "\{.*\}": '), 'Invalid value: "<object>": '),
    (re.compile(r'127\.0\.0\.1:\d+'), '<address>'),
    (re.compile(r'kube-api-access-[a-z0-9]{5}'), 'kube-api-access-<random>'),
    (re.compile(r'\bcontinue=[\w%=-]+'), 'continue=<token>'),
)


@dataclasses.dataclass(frozen=True)
class Masked:
    """An exchange without what differs from run to run."""

    label: str
    content: dict[str, Any]


class Masker:
    """
    Masks the answers of one server to one transcript, in their order: it numbers what it sees.
    """

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._versions: dict[str, dict[str, str]] = {}
        self._generated: dict[str, str] = {}

    def mask_exchange(self, exchange: fidelity_talks.Exchange) -> Masked:
        """
        Mask an answer; the names that the server has generated for it can be anywhere in it, and in
        later ones.
        """
        if exchange.prefix:
            for name in re.findall(
                rf'\b{re.escape(exchange.prefix)}[a-z0-9]{{5}}\b', str(exchange.body)
            ):
                self._generated.setdefault(
                    name, f'{exchange.prefix}<generated {len(self._generated) + 1}>'
                )
        content = {'code': exchange.code, 'headers': dict(exchange.headers), 'body': exchange.body}
        return Masked(self.mask_text(exchange.label), self.mask(content))

    def mask(self, value: Any) -> Any:
        """Build a copy with everything masked."""
        match value:
            case {'metadata': {'uid': str(uid), 'resourceVersion': str(version), **_rest}}:
                masked = self._mask_items(value)
                masked['metadata']['resourceVersion'] = self._number_version(uid, version)
                return masked
            case {
                'message': str(message),
                'details': {'causes': [_, _, *_], 'group': str(group)},
            } if group.endswith('.kopf.dev'):
                return self._mask_items(_sort_causes(value, message))
            case dict():
                return self._mask_items(value)
            case list():
                return [self.mask(item) for item in value]
            case str():
                return self.mask_text(value)
            case _:
                return value

    def mask_text(self, text: str) -> str:
        """Mask the parts of a text."""
        for name, masked in self._generated.items():
            text = text.replace(name, masked)
        text = UID.sub(lambda match: self._number_uid(match[0]), text)
        text = TIME.sub(
            lambda match: (
                '<time>' if match[1] is None else f'<time with {len(match[1]) - 1} digits>'
            ),
            text,
        )
        for pattern, masked in TEXTS:
            text = pattern.sub(masked, text)
        return text

    def _mask_items(self, value: dict[str, Any]) -> dict[str, Any]:
        return {
            self.mask_text(key): self._mask_item(key, item) for key, item in sorted(value.items())
        }

    def _mask_item(self, key: str, item: Any) -> Any:
        if key == 'resourceVersion' and isinstance(item, str) and item.isdigit() and item != '0':
            return '<version>'
        if key == 'continue' and item:
            return '<token>'
        if key == 'managedFields' and isinstance(item, list):
            return sorted(self.mask(item), key=_dump)
        if key in ('serverAddress', 'caBundle', 'ca.crt', 'userInfo'):
            return f'<{key}>'
        if (
            key in ('resources', 'subresources')
            and isinstance(item, list)
            and isinstance(item[0], dict)
        ):
            return {_get_resource_name(resource): self.mask(resource) for resource in item}
        if key == 'cells':
            return ['<age>' if AGE.fullmatch(str(cell)) else self.mask(cell) for cell in item]
        return self.mask(item)

    def _number_uid(self, uid: str) -> str:
        return self._uids.setdefault(uid, f'<uid {len(self._uids) + 1}>')

    def _number_version(self, uid: str, version: str) -> str:
        known = self._versions.setdefault(uid, {})
        return known.setdefault(version, f'<version {len(known) + 1}>')


def _get_resource_name(resource: dict[str, Any]) -> str:
    """Get the name of a resource or a subresource, in any form of the discovery."""
    return next(resource[key] for key in ('name', 'subresource', 'resource') if key in resource)


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _sort_causes(status: dict[str, Any], message: str) -> dict[str, Any]:
    """Sort the errors of an object, also in the text of all of them, if it is as it should be."""
    causes = status['details']['causes']
    texts = [f'{cause["field"]}: {cause["message"]}' for cause in causes]
    ordered = sorted(causes, key=_dump)
    return {
        **status,
        'message': message.replace(', '.join(texts), '<all causes>'),
        'details': {**status['details'], 'causes': ordered},
    }


def mask_exchanges(exchanges: Sequence[fidelity_talks.Exchange]) -> list[Masked]:
    """Mask all the answers to one transcript."""
    masker = Masker()
    return [masker.mask_exchange(exchange) for exchange in exchanges]
