"""
Defaulting: what the API fills in the built-in objects each time when it reads them.

The objects must be decoded before: here the fields are absent if they are not set.
"""

from typing import Any

from kopf._sandbox.registry import rules


def apply_kind_defaults(group: str, version: str, kind: str, obj: dict[str, Any]) -> None:
    """
    Fill in the defaults of a built-in kind, on creation and on updates alike. Mutates the object.

    Each built-in kind is served in one version now; the version is for the day when one has two.
    """
    rules.find_rules(group, kind).defaults(obj)
