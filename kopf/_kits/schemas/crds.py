"""
CRDs: classes that stand for kinds of custom resources, and the definitions made from them.

A class is declared with `crd`. It needs no base class. Its fields are the stanzas of the objects,
usually ``spec`` and ``status``; their types say what is in them. Several classes of one kind are
its versions. Declarations are checked immediately, unless they refer to classes that are defined
below them: then, when the definition is built.
"""

import dataclasses
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import typing_extensions

from kopf._cogs.codecs import conversions, fields, markers, resource_types
from kopf._kits.schemas import structural

_Class = TypeVar('_Class', bound=type)

API_VERSION: Final = 'apiextensions.k8s.io/v1'

MANIFEST: Final = '__kopf_manifest__'
"""The attribute of the classes with a function that returns the definition; sandboxes call it."""

_META_FIELDS: Final = {
    'apiVersion': {'type': 'string'},
    'kind': {'type': 'string'},
    'metadata': {'type': 'object'},
}
_AGE: Final = {'name': 'Age', 'type': 'date', 'jsonPath': '.metadata.creationTimestamp'}
_COLUMN_TYPES: Final = ('string', 'integer', 'number', 'boolean')
_SCALE_FIELDS: Final = ('specReplicasPath', 'statusReplicasPath', 'labelSelectorPath')
_VERSION: Final = re.compile(r'v([0-9]+)(?:(alpha|beta)([0-9]+))?')


class CRDError(TypeError):
    """A class cannot stand for a kind of resources."""


@typing_extensions.dataclass_transform(kw_only_default=True)
def crd(  # noqa: PLR0913  # there are as many arguments as there are options
    api_version: str,
    *,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    short_names: Collection[str] = (),
    categories: Collection[str] = (),
    scope: Literal['Namespaced', 'Cluster'] = 'Namespaced',
    selectable: Collection[str] = (),
    scale: Collection[str] = (),
    storage: bool = True,
    served: bool = True,
    deprecated: bool | str = False,
    naming: resource_types.Naming = 'camel',
) -> Callable[[_Class], _Class]:
    """
    Let the class stand for a kind of custom resources, e.g. ``example.com/v1``.

    Handlers can be declared for the class, and get values of its types if they ask for them by the
    annotations of their arguments. ``kopf crd`` prints the definition for the cluster. Plain
    classes become dataclasses with keyword arguments; all others stay as they are.
    """
    group, _, version = api_version.rpartition('/')
    _check_options(group, version, api_version, scope=scope, naming=naming, scale=scale)
    for option, value in {'short_names': short_names, 'categories': categories}.items():
        if isinstance(value, str):
            raise CRDError(f'@kopf.crd: {option}= is a list of strings; got {value!r}.')

    def decorate(cls: _Class, /) -> _Class:
        known = fields.find_flavor(cls)
        own: Any = cls if known is not None else dataclasses.dataclass(kw_only=True)(cls)
        name = kind if kind is not None else cls.__name__
        declaration = resource_types.Declaration(
            group=group,
            version=version,
            kind=name,
            plural=plural if plural is not None else f'{name.lower()}s',
            singular=singular,
            short_names=tuple(short_names),
            categories=tuple(categories),
            is_namespaced=scope == 'Namespaced',
            is_served=served,
            is_stored=storage,
            deprecated=deprecated,
            selectable=tuple(selectable),
            scale=tuple(scale),
            naming=naming,
        )
        setattr(own, resource_types.ATTRIBUTE, declaration)
        setattr(own, MANIFEST, staticmethod(lambda: build_crd(declaration.name)))

        try:
            build_version(own)
        except NameError:
            pass  # refers to classes that are defined below

        resource_types.register(own, declaration)
        return typing.cast(_Class, own)

    return decorate


def _check_options(
    group: str, version: str, api_version: str, *, scope: str, naming: str, scale: Collection[str]
) -> None:
    if '.' not in group or _VERSION.fullmatch(version) is None:
        raise CRDError(
            f'@kopf.crd: the group and the version are needed, as in example.com/v1; '
            f'got {api_version!r}.'
        )
    if scope not in ('Namespaced', 'Cluster'):
        raise CRDError(f"@kopf.crd: scope= is 'Namespaced' or 'Cluster'; got {scope!r}.")
    if naming not in typing.get_args(resource_types.Naming):
        raise CRDError(f"@kopf.crd: naming= is 'camel' or 'none'; got {naming!r}.")
    if len(scale) not in (0, 2, 3):
        raise CRDError(
            f'@kopf.crd: scale= has the paths of the replicas in the spec and in the status, and '
            f"optionally of the selector: ('spec.replicas', 'status.replicas'); got {scale!r}."
        )


def list_versions(name: str) -> list[type]:
    """List the classes of one kind, from the newest version to the oldest one."""
    classes = resource_types.list_classes(name)
    return sorted(classes, key=lambda cls: _rank(_get(cls).version), reverse=True)


def build_crd(name: str) -> dict[str, Any]:
    """
    Build the definition of a kind from its declared classes.

    Raises `CRDError` and other `TypeError` if the classes cannot stand for the kind.
    """
    classes = list_versions(name)
    stored = [cls for cls in classes if _get(cls).is_stored]
    if len(stored) != 1:
        found = ', '.join(cls.__name__ for cls in stored) or 'none'
        raise CRDError(
            f'{name}: exactly one version is stored; here: {found}. '
            f'Add storage=False to @kopf.crd of the others.'
        )

    main = _get(stored[0])
    _check_consistency(main, classes)
    names = {
        'kind': main.kind,
        'listKind': f'{main.kind}List',
        'plural': main.plural,
        'singular': main.singular or main.kind.lower(),
        'shortNames': list(main.short_names),
        'categories': list(main.categories),
    }

    return {
        'apiVersion': API_VERSION,
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': main.name},
        'spec': {
            'group': main.group,
            'names': {key: value for key, value in names.items() if value},
            'scope': 'Namespaced' if main.is_namespaced else 'Cluster',
            'versions': [build_version(cls) for cls in classes],
        },
    }


def _check_consistency(main: resource_types.Declaration, classes: Sequence[type]) -> None:
    """Refuse versions of one kind that disagree on what they have in common."""
    for cls in classes:
        other = _get(cls)
        for option in ('kind', 'is_namespaced'):
            if getattr(main, option) != getattr(other, option):
                what = 'kind=' if option == 'kind' else 'scope='
                raise CRDError(f'{cls.__name__}: {what} differs from that of other versions.')


def build_version(cls: type) -> dict[str, Any]:
    """Build one version of a definition."""
    declaration = _get(cls)
    if not any(field.name not in conversions.OWN_FIELDS for field in _list_fields(cls)):
        raise CRDError(
            f'{cls.__name__} has no fields. Add the stanzas of its objects, such as spec. If it '
            'has them, put @kopf.crd above the decorator that makes it a dataclass.'
        )

    conversions.set_naming(cls, declaration.naming)
    schema = _build_schema(cls)
    columns = list(_take_columns(schema, '', cls.__name__))
    properties = schema['properties']
    version: dict[str, Any] = {
        'name': declaration.version,
        'served': declaration.is_served,
        'storage': declaration.is_stored,
        'schema': {'openAPIV3Schema': schema},
        'additionalPrinterColumns': [*columns, _AGE],
    }
    if declaration.deprecated:
        version['deprecated'] = True
    if isinstance(declaration.deprecated, str):
        version['deprecationWarning'] = declaration.deprecated
    if declaration.selectable:
        paths = [_resolve(path, schema, cls, 'selectable=') for path in declaration.selectable]
        version['selectableFields'] = [{'jsonPath': path} for path in paths]

    subresources: dict[str, Any] = {'status': {}} if 'status' in properties else {}
    if declaration.scale:
        paths = [_resolve(path, schema, cls, 'scale=') for path in declaration.scale]
        subresources['scale'] = dict(zip(_SCALE_FIELDS, paths, strict=False))

    if subresources:
        version['subresources'] = subresources
    plain: dict[str, Any] = structural.to_plain(version)
    return plain


def _build_schema(cls: type) -> dict[str, Any]:
    codec = conversions.get_object_codec(cls)
    parts = codec.describe_parts()
    root: dict[str, Any] = {'type': 'object', 'properties': dict(_META_FIELDS)}
    for name, part in parts.items():
        root['properties'][name] = structural.rewrite(part, f'{cls.__name__}.{name}')
    required = [field.wire for field in codec.parts if field.make_default is None]
    if required:
        root['required'] = required
    doc = fields.read_docstring(cls)
    extras: dict[str, Any] = {'description': doc} if doc else {}
    for rule in markers.list_rules(cls):
        extras = markers.merge_extras(extras, rule.list_extras())
    return {**root, **extras}


def _list_fields(cls: type) -> list[fields.Field]:
    flavor = fields.find_flavor(cls)
    return [] if flavor is None else fields.list_fields(cls, flavor, _get(cls).naming)


def _take_columns(schema: Any, path: str, name: str) -> Iterator[dict[str, Any]]:
    """Move the columns out of the schema."""
    for column in schema.pop(markers.COLUMN, ()):
        if '[' in path:
            raise CRDError(f'{name}{path}: columns are for single values, not for items of lists.')
        kind = 'date' if schema.get('format') == 'date-time' else schema.get('type')
        guessed = kind if kind in (*_COLUMN_TYPES, 'date') else 'string'
        yield {'type': guessed, **column, 'jsonPath': path}

    for key, child in (schema.get('properties') or {}).items():
        yield from _take_columns(child, f'{path}.{key}', name)
    for key in ('items', 'additionalProperties'):
        if isinstance(schema.get(key), dict):
            yield from _take_columns(schema[key], f'{path}[]', name)


def _resolve(path: str, schema: Mapping[str, Any], cls: type, option: str) -> str:
    """Return the JSON path of a field. Raises `CRDError` if there is no such field."""
    found: Mapping[str, Any] | None = schema
    for part in path.lstrip('.').split('.'):
        found = ((found or {}).get('properties') or {}).get(part)
        if found is None:
            raise CRDError(
                f'{cls.__name__}: there is no field {path!r} for {option} '
                f'Name it as in the API, e.g. spec.minSize.'
            )

    return '.' + path.lstrip('.')


def _get(cls: type) -> resource_types.Declaration:
    found = resource_types.find_declaration(cls)
    if found is None:
        raise CRDError(f'{cls.__name__} is not declared with @kopf.crd.')
    return found


def _rank(version: str) -> tuple[int, int, int]:
    """Rank versions as Kubernetes does: stable ones first, then beta, then alpha."""
    found = _VERSION.fullmatch(version)
    assert found is not None
    stability = {None: 2, 'beta': 1, 'alpha': 0}[found[2]]
    return stability, int(found[1]), int(found[3] or 0)
