"""
Server metrics: how many objects are stored, in the format of Prometheus.
"""

from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

MEDIA_TYPE = 'text/plain; version=0.0.4; charset=utf-8; escaping=underscores'

_NAME = 'apiserver_storage_objects'
_HEADER = f"""# HELP {_NAME} [STABLE] Number of stored objects at the time of the question.
# TYPE {_NAME} gauge
"""


def render(store: memory.Storage, catalog: kinds.Catalog) -> bytes:
    """Render the numbers of the stored objects of all served resources."""
    homes = sorted({resource.home for resource in catalog if 'list' in resource.verbs})
    lines = [
        f'{_NAME}{{resource="{_name(home)}"}} {len(store.shelf(home).objects)}\n' for home in homes
    ]
    return f'{_HEADER}{"".join(lines)}'.encode()


def _name(home: kinds.Home) -> str:
    return f'{home.plural}.{home.group}' if home.group else home.plural
