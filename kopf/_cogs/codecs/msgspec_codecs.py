"""
The codec with msgspec: for dataclasses, structs, classes of attrs, dicts with types.
"""

from typing import Any

import msgspec

from kopf._cogs.codecs import conversions, fields, resource_types, shadows


class MsgspecCodec:
    """The conversions of one type by its shadow."""

    def __init__(self, annotation: Any, naming: resource_types.Naming) -> None:
        cls = fields.unwrap_optional(annotation)
        plan = shadows.build_plan(annotation, getattr(cls, '__name__', str(cls)), naming)
        self._type = plan.type
        self._load = plan.load
        self._dump = plan.dump

    def load(self, raw: Any) -> Any:
        try:
            value = msgspec.convert(raw, self._type)
            return value if self._load is None else self._load(value)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).rpartition(' - at `$')
            if not problem:
                problem = str(error)
                path = '`'
            raise conversions.MisfitError(path[:-1].lstrip('.'), problem) from error
        except (TypeError, ValueError) as error:  # from the users' own checks in the constructors
            raise conversions.MisfitError('', str(error)) from error

    def dump(self, value: Any) -> Any:
        return msgspec.to_builtins(value if self._dump is None else self._dump(value))

    def describe(self) -> dict[str, Any]:
        return shadows.describe(self._type)
