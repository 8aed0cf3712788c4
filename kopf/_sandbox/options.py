"""
Options: how a sandbox is started, whichever way it is.

Cheap to import: this is all that is loaded until a sandbox is needed.
"""

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Source = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""
Where manifests come from: a path of a file or of a directory, a text of YAML or JSON, an object, or a list of objects.

A string is a text if it has line breaks, and a path otherwise.
"""

DAY = 24 * 60 * 60.0


class MissingLibraryError(Exception):
    """A library that the sandbox cannot do without is not installed."""

    def __init__(self, library: str, purpose: str) -> None:
        super().__init__(
            f'The sandbox needs the library {library!r} for {purpose}. '
            f'Install what it needs: pip install cryptography google-re2'
        )


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user wants of a sandbox."""

    host: str = '127.0.0.1'
    port: int = 0  # 0 for any free one
    rbac: bool = False
    tls: bool = True
    apply: Sequence[Source] = ()
    save: str | os.PathLike[str] | None = (
        None  # the directory for the objects to outlive the process
    )
    now: Callable[[], datetime.datetime] | None = (
        None  # for the times in objects; None for the real time
    )
    kubeconfig: pathlib.Path | None = None  # where to write it; None for a temporary file
