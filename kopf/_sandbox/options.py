"""
Options: the parameters of a sandbox, common to all ways to start it.

It is cheap to import: nothing else is loaded until a sandbox is needed.
"""

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Source = str | os.PathLike[str] | type[Any] | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""
A source of manifests: a path of a file or a directory, a text of YAML or JSON, an object, or a list
of objects; also a class that stands for a custom resource.

A string is a text if it has line breaks, and a path otherwise.
"""

MANIFEST = '__kopf_manifest__'
"""The attribute of classes that stand for resources: a function that returns their definition."""

DAY = 24 * 60 * 60.0


class MissingLibraryError(Exception):
    """A library that the sandbox requires is not installed."""

    def __init__(self, library: str, purpose: str) -> None:
        super().__init__(
            f'The sandbox needs the library {library!r} for {purpose}. '
            f'Install what it needs: pip install cryptography google-re2'
        )


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a sandbox, as set by the user."""

    host: str = '127.0.0.1'
    port: int = 0  # 0 for any free port
    rbac: bool = False
    tls: bool = True
    apply: Sequence[Source] = ()
    save: str | os.PathLike[str] | None = None  # the directory to save the objects to
    # For the times in objects; None for the real time.
    now: Callable[[], datetime.datetime] | None = None
    kubeconfig: pathlib.Path | None = None  # the path to write it to; None for a temporary file
