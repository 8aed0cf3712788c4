"""
Defaulting: the defaults of built-in objects, which the API sets on each read.

The objects must be decoded already: unset fields are absent.
"""

from typing import Any

from kopf._sandbox.registry import rules


def apply_kind_defaults(group: str, version: str, kind: str, obj: dict[str, Any]) -> None:
    """
    Set the defaults of a built-in kind, both on creations and on updates. Modifies the object.

    Each built-in kind is served in one version now; the version is for future kinds with two.
    """
    rules.find_rules(group, kind).defaults(obj)
