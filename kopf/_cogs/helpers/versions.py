"""
The version of this package: the only place where it is written; the build reads it from here.
"""

import json

version = '0.1.0'
version_tuple: tuple[int | str, ...] = tuple(
    int(part) if part.isdigit() else part for part in version.split('.')
)


def installed_commit() -> str | None:
    """Tell the commit if the package was installed from a repository, as installers record it; else ``None``."""
    from importlib import (
        metadata,
    )  # it loads e-mail parsers: too much for a mere import of the package

    try:
        origin = json.loads(metadata.distribution('kopf').read_text('direct_url.json') or '{}')
        commit = origin['vcs_info']['commit_id']
    except (metadata.PackageNotFoundError, KeyError, TypeError, ValueError):
        return None
    return str(commit)
