"""
What the operators of the comparison tell of the calls of their handlers: one line of JSON per call.
"""

import json
import os


def record(handler, *, reason=None, name=None, old=None, new=None, diff=(), retry=None, **_):
    """Write down a call. All is copied: the arguments can be live views of objects."""
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
    """Tell if the object allows its gated handlers to succeed: they fail until then."""
    return bool(status.get('open'))


def _simplify(value):
    try:
        return dict(value)
    except (TypeError, ValueError):
        return str(value)
