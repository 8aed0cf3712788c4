"""
JSON: the same values and the same refusals with and without the fast library, and nothing is lost
on the way back.
"""

import json
from typing import Any
from unittest import mock

from kopf._cogs.helpers import jsons


def check(source: bytes) -> None:
    fast = _load(source)
    with mock.patch.object(jsons, 'orjson', None):
        portable = _load(source)
    assert _show(fast) == _show(portable), 'the readers differ'
    if isinstance(fast, jsons.JSONDecodeError):
        return
    for options in ({}, {'sort_keys': True}):
        again = jsons.loads(jsons.dumps(fast, **options))
        assert _show(again) == _show(fast), 'the value is different when it is written and read'


def _load(source: bytes) -> Any:
    try:
        return jsons.loads(source)
    except jsons.JSONDecodeError as error:
        return error


def _show(value: Any) -> str:
    """Show a value exactly: so that true is not 1, and 1 is not 1.0."""
    return (
        'refused' if isinstance(value, jsons.JSONDecodeError) else json.dumps(value, sort_keys=True)
    )
