"""
The codec with pydantic, for the models of those users who have it.

The names in the API are the aliases of the fields. As the models are not ours, names with
underscores and without aliases are refused rather than renamed.
"""

import typing
from collections.abc import Iterator
from typing import Any

import pydantic

from kopf._cogs.codecs import conversions, fields, resource_types, shadows


class PydanticCodec:
    """The conversions of a model, also of an optional one."""

    def __init__(self, annotation: Any, naming: resource_types.Naming) -> None:
        cls = fields.unwrap_optional(annotation)
        self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(annotation)
        if naming == 'camel':
            _check_aliases(cls, set())

    def load(self, raw: Any) -> Any:
        try:
            return self._adapter.validate_python(raw)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise conversions.MisfitError(_join(first['loc']), first['msg']) from error

    def dump(self, value: Any) -> Any:
        return self._adapter.dump_python(value, mode='json', by_alias=True)

    def describe(self) -> dict[str, Any]:
        return self._adapter.json_schema(by_alias=True, mode='validation')


def _check_aliases(cls: Any, seen: set[type]) -> None:
    seen.add(cls)
    for name, field in cls.model_fields.items():
        expected = resource_types.make_camel(name)
        if expected != name and field.alias is None:
            shadows.refuse(
                f'{cls.__name__}.{name}',
                f'it has no alias, so it would not be {expected!r} in the API',
                'Add model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True) to '
                "the model, or naming='none' to @kopf.crd.",
            )
        for inner in _iterate_models(field.annotation):
            if inner not in seen:
                _check_aliases(inner, seen)


def _iterate_models(annotation: Any) -> Iterator[Any]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _iterate_models(argument)


def _join(location: tuple[int | str, ...]) -> str:
    path = ''
    for part in location:
        path += f'[{part}]' if isinstance(part, int) else f'.{part}'
    return path.lstrip('.')
