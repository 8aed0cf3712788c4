"""
The records of the calls of handlers in the compared operators: one line of JSON per call.
"""

import json
import os


def record(handler, *, reason=None, name=None, old=None, new=None, diff=(), retry=None, **_):
    """Record a call. The arguments are copied, as they can be live views of objects."""
    reason = None if reason is None else str(getattr(reason, 'value', reason))
    call = {
        'handler': handler,
        'name': name,
        'reason': reason,
        'retry': retry,
        'old': old,
        'new': new,
        'diff': [list(item) for item in diff],
    }
    with open(os.environ['COMPARISON_CALLS'], 'a', encoding='utf-8') as file:
        file.write(json.dumps(call, sort_keys=True, default=_simplify) + '\n')


def is_open(status):
    """Return whether the gated handlers of the object may succeed: they fail until then."""
    return bool(status.get('open'))


def _simplify(value):
    try:
        return dict(value)
    except (TypeError, ValueError):
        return str(value)
