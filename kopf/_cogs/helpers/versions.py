"""
The version of this package, defined only here: the build reads it from this file.

It is the version of Kopf whose interface this package implements, so that the requirements of
existing operators hold, followed by the number of our own release as a local version:
``1.45.2+r1``, ``1.45.2+r2``, ``1.46.0+r3``.
"""

import json
import re

version = '1.45.2+r1'
version_tuple: tuple[int | str, ...] = tuple(
    int(part) if part.isdigit() else part for part in re.split(r'[.+]', version)
)
description = f'an API-compatible rebuild of Kopf {version.partition("+")[0]}'


def installed_commit() -> str | None:
    """Return the commit that the package was installed from, if the installer recorded it."""
    # It imports e-mail parsers, which are too slow for a mere import of the package.
    from importlib import metadata

    try:
        origin = json.loads(metadata.distribution('kopf').read_text('direct_url.json') or '{}')
        commit = origin['vcs_info']['commit_id']
    except (metadata.PackageNotFoundError, KeyError, TypeError, ValueError):
        return None

    return str(commit)
