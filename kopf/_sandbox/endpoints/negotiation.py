"""
Negotiation: the form of objects that a client accepts, and the encoding into that form.

Responses are in JSON or YAML, as tables or metadata only if requested. Protobuf is decoded in
requests to built-in resources, but never encoded: clients that prefer it get JSON instead.
"""

import dataclasses
import datetime
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from kopf._cogs.helpers import jsons
from kopf._sandbox.codec import manifests, parsing, protobuf
from kopf._sandbox.endpoints import tables
from kopf._sandbox.meta import errors, go_format, kinds
from kopf._sandbox.registry import conversions, reader, watcher
from kopf._sandbox.storage import memory

JSON = 'application/json'
YAML = 'application/yaml'
PROTOBUF = 'application/vnd.kubernetes.protobuf'
WRITTEN = (JSON, YAML, PROTOBUF)
"""The media types offered in refusals, in this order."""

_YAML_NAMES = (YAML, 'application/x-yaml')
_SHAPES = ('Table', 'PartialObjectMetadata', 'PartialObjectMetadataList')

Headers = Sequence[tuple[str, str]]
Clock = Callable[[], datetime.datetime]


@dataclasses.dataclass(frozen=True)
class Form:
    """A form of responses: the media type and, for objects, the shape."""

    media_type: str = JSON
    # Table, PartialObjectMetadata, PartialObjectMetadataList, or '' for whole objects.
    shape: str = ''
    group: str = ''
    version: str = ''


@dataclasses.dataclass(frozen=True)
class Answer:
    """A complete response, or a stream of watch lines."""

    code: int = 200
    body: bytes = b''
    media_type: str = JSON
    headers: Headers = ()
    lines: AsyncGenerator[bytes] | None = None


def choose_form(accept: str, *, shapes: bool, custom: bool = False, streams: bool = False) -> Form:
    """
    Return the first supported form of the header; refuse if there is none.

    With ``shapes``, tables and metadata-only objects are supported. The endpoints of built-in
    resources (not ``custom``) word the refusal differently; with ``streams``, they also list the
    forms for watching.
    """
    wildcards = ('application/*', '*/*') if custom else ('*/*',)
    options = parse_accept(accept or '*/*')
    for media_type, parameters in options:
        form = _match_form(media_type, parameters, wildcards, shapes=shapes)
        if form is not None:
            return form

    is_written = any(media_type in (*WRITTEN, *wildcards) for media_type, _ in options)
    if custom or is_written:
        raise errors.unknown_shape(WRITTEN)

    streaming = (f'{JSON};stream=watch', f'{PROTOBUF};stream=watch') if streams else ()
    raise errors.not_acceptable((*WRITTEN, *streaming))


def _match_form(
    media_type: str, parameters: Mapping[str, str], wildcards: Sequence[str], *, shapes: bool
) -> Form | None:
    """Return the form for one option of the header; ``None`` if it is not supported."""
    shape = parameters.get('as', '')
    is_writable = not shape or (shapes and _is_known_shape(parameters))
    if not is_writable:
        return None
    if media_type in (JSON, *wildcards):
        return Form(JSON, shape, parameters.get('g', ''), parameters.get('v', ''))
    if media_type in _YAML_NAMES and not shape:
        return Form(YAML)
    return None


def _is_known_shape(parameters: Mapping[str, str]) -> bool:
    return (
        parameters.get('as') in _SHAPES
        and parameters.get('g') == 'meta.k8s.io'
        and parameters.get('v') in ('v1', 'v1beta1')
    )


def parse_accept(header: str) -> list[tuple[str, dict[str, str]]]:
    """Parse the media types with their parameters, in the order of preference."""
    options = []
    for part in header.split(','):
        media_type, *pairs = (piece.strip() for piece in part.split(';'))
        parameters = dict(pair.split('=', 1) for pair in pairs if '=' in pair)
        options.append((media_type.lower(), parameters))
    return sorted(options, key=lambda option: -_parse_quality(option[1].get('q', '1')))


def is_yaml(content_type: str) -> bool:
    """Return whether a body of this type is in YAML."""
    return content_type.split(';')[0].strip().lower() in _YAML_NAMES


def decode_body(raw: bytes, content_type: str, kind: str, api_version: str = '') -> Any:
    """
    Decode a body by its media type; ``kind`` is the expected kind.

    For built-in kinds, the API version is given too, and the body may be in protobuf. Numbers are
    normalized in custom objects but not in the JSON of built-in ones, where ``1.0`` is not an
    integer.
    """
    media_type = content_type.split(';')[0].strip().lower() or JSON
    if media_type in _YAML_NAMES:
        return decode_yaml(raw)
    if media_type == PROTOBUF and api_version:
        return protobuf.decode_object(raw, kind, api_version)
    if media_type != JSON:
        raise errors.unsupported_media_type((JSON, YAML, PROTOBUF))

    try:
        value = parsing.parse_json(raw)
        _check_envelope(value)
    except ValueError as e:
        why = f"couldn't get version/kind; json parse error: {e}"
        raise (
            errors.bad_request(why) if kind == 'DeleteOptions' else _unrecognized(kind, why, raw)
        ) from e

    if api_version:
        return {} if value is None else value
    if isinstance(value, dict | None) and (missing := _find_missing(value or {})):
        raise _unrecognized(
            kind, f"Object '{missing}' is missing in '{raw.decode('utf-8', 'replace')}'", raw
        )
    return parsing.normalize_numbers(value, raw)


def _check_envelope(value: Any) -> None:
    """Check the types of the fields that are decoded first. Raises `ValueError` if wrong."""
    for name in ('apiVersion', 'kind'):
        found = value.get(name) if isinstance(value, dict) else None
        if found is not None and not isinstance(found, str):
            kind = go_format.json_type(found)
            raise ValueError(
                f'json: cannot unmarshal {kind} into Go struct field .{name} of type string'
            )


def _find_missing(value: Mapping[str, Any]) -> str:
    return 'Kind' if not value.get('kind') else 'apiVersion' if not value.get('apiVersion') else ''


def _unrecognized(kind: str, why: str, raw: bytes) -> errors.ApiError:
    return errors.bad_request(
        f'the object provided is unrecognized (must be of type {kind}): {why} '
        f'({protobuf.summarize(raw)})'
    )


def decode_patch(raw: bytes, *, custom: bool = False) -> Any:
    """Decode the body of a patch, always JSON; normalize the numbers for custom objects."""
    try:
        value = parsing.parse_json(raw)
    except ValueError as e:
        raise errors.bad_request(f'error decoding patch: {e}') from e
    return parsing.normalize_numbers(value, raw) if custom else value


def decode_yaml(raw: bytes) -> Any:
    """Decode the only document of a body."""
    try:
        documents = manifests.parse_yaml(raw, source='the body')
    except manifests.ManifestError as e:
        why = parsing.explain_yaml(e.__cause__)
        raise errors.bad_request(
            f'error decoding YAML: error converting YAML to JSON: yaml: {why}'
        ) from e

    try:
        return parsing.normalize_numbers(documents[0], raw) if documents else None
    except OverflowError as e:
        raise errors.bad_request('error decoding YAML: there is a number out of range') from e


def encode_value(value: Any, form: Form, *, pretty: bool = False) -> bytes:
    """Encode any value that is not an object of a resource: statuses, discovery, …"""
    if form.media_type == YAML:
        import yaml

        # Without YAML aliases.
        return yaml.safe_dump(jsons.loads(jsons.dumps(value)), allow_unicode=True).encode()

    if pretty:
        return json.dumps(value, indent=2, ensure_ascii=False).encode() + b'\n'
    return jsons.dumps(value) + b'\n'


@dataclasses.dataclass(frozen=True)
class Renderer:
    """Encodes the objects of one resource for one client."""

    resource: kinds.Resource
    form: Form
    clock: Clock
    include: str = 'Metadata'  # the part of the object in the rows of tables
    pretty: bool = False
    # The shapes whose headers were already sent in this stream.
    shown: set[str] = dataclasses.field(default_factory=set)

    @property
    def is_plain(self) -> bool:
        """Whether the objects can be sent as they are stored."""
        return self.form == Form() and not self.pretty

    def render_object(self, stored: memory.Stored) -> bytes:
        if self.is_plain:
            return conversions.read_raw(self.resource, stored) + b'\n'
        return self.render_body(conversions.read(self.resource, stored))

    def render_body(self, body: dict[str, Any]) -> bytes:
        """Encode an object that is not stored in this form."""
        return self._encode(self._shape(body))

    def render_list(self, listing: reader.Listing) -> bytes:
        meta: dict[str, Any] = {'continue': ''} if self.resource.custom else {}
        meta['resourceVersion'] = str(listing.version)
        if listing.token:
            meta['continue'] = listing.token
        if listing.remaining is not None:
            meta['remainingItemCount'] = listing.remaining
        if self.is_plain:
            return self._join_list(meta, listing.items)
        return self._encode(self._shape_list(meta, listing.items))

    def render_line(self, type: str, stored: memory.Stored) -> bytes:
        """Encode one event of a watch. Only the first table has the headers."""
        if self.form == Form():
            return watcher.encode_line(type, conversions.read_raw(self.resource, stored))
        body = self._shape(conversions.read(self.resource, stored))
        return watcher.encode_line(type, jsons.dumps(self._drop_headers(body)))

    def render_bookmark(self, version: int, annotations: Mapping[str, str]) -> bytes:
        meta: dict[str, Any] = {'resourceVersion': str(version)}
        if annotations:
            meta['annotations'] = dict(annotations)
        body = {
            'kind': self.resource.kind,
            'apiVersion': self.resource.api_version,
            'metadata': meta,
        }
        if self.form.shape:
            body = self._drop_headers(self._shape(body))
        return watcher.encode_line('BOOKMARK', jsons.dumps(body))

    def _join_list(self, meta: Mapping[str, Any], items: Sequence[memory.Stored]) -> bytes:
        """Join stored objects to a list, where built-in objects have no kind and API version."""
        read = conversions.read_raw
        custom = self.resource.custom
        kind = jsons.dumps(self.resource.kind)
        api_version = jsons.dumps(self.resource.api_version)
        prefix = b'{"kind":%b,"apiVersion":%b,' % (kind, api_version)
        raws = [read(self.resource, stored) for stored in items]

        if not custom:
            raws = [
                b'{' + raw.removeprefix(prefix) if raw.startswith(prefix) else raw for raw in raws
            ]

        return b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[%b]}\n' % (
            jsons.dumps(self.resource.list_kind),
            api_version,
            jsons.dumps(meta),
            b','.join(raws),
        )

    def _shape(self, body: dict[str, Any]) -> dict[str, Any]:
        match self.form.shape:
            case 'Table':
                return tables.build_table(
                    self.resource, [body], now=self.clock(), include=self.include
                )
            case 'PartialObjectMetadata' | 'PartialObjectMetadataList':
                return tables.build_partial(self.resource, body)
            case _:
                return body

    def _drop_headers(self, body: dict[str, Any]) -> dict[str, Any]:
        is_repeated = self.form.shape in self.shown
        self.shown.add(self.form.shape)
        return (
            {**body, 'columnDefinitions': None}
            if is_repeated and self.form.shape == 'Table'
            else body
        )

    def _shape_list(self, meta: dict[str, Any], items: Sequence[memory.Stored]) -> dict[str, Any]:
        bodies = [conversions.read(self.resource, stored) for stored in items]
        match self.form.shape:
            case 'Table':
                return tables.build_table(
                    self.resource,
                    bodies,
                    now=self.clock(),
                    include=self.include,
                    list_metadata=meta,
                )
            case 'PartialObjectMetadata' | 'PartialObjectMetadataList':
                return tables.build_partial_list(self.resource, bodies, list_metadata=meta)
            case _:
                for body in bodies if not self.resource.custom else ():
                    del body['kind'], body['apiVersion']
                return {
                    'kind': self.resource.list_kind,
                    'apiVersion': self.resource.api_version,
                    'metadata': meta,
                    'items': bodies,
                }

    def _encode(self, value: Any) -> bytes:
        return encode_value(value, self.form, pretty=self.pretty)


def _parse_quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
