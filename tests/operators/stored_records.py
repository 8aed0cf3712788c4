"""
The records of handlers, as Kopf and the former versions write them to objects.
"""

import datetime
import json

from clusters import LAST_HANDLED, get_last_handled, get_progress

PREFIX = 'kopf.zalando.org'


def tell_time(seconds, *, naive=False):
    """A moment in the past or in the future, as it is written on objects."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return (moment.replace(tzinfo=None) if naive else moment).isoformat(timespec='microseconds')


def dump(record):
    return json.dumps(record, separators=(',', ':'))


def delayed(purpose='create', *, delay=100, started=-200, naive=False, **kwargs):
    return {
        'started': tell_time(started, naive=naive),
        'delayed': tell_time(delay, naive=naive),
        'purpose': purpose,
        'retries': 1,
        'success': False,
        'failure': False,
        'message': 'later',
        **kwargs,
    }


def succeeded(purpose='create', **kwargs):
    return {
        'started': tell_time(-200),
        'stopped': tell_time(-199),
        'purpose': purpose,
        'retries': 1,
        'success': True,
        'failure': False,
        **kwargs,
    }


def failed(purpose='create'):
    return {**succeeded(purpose), 'success': False, 'failure': True, 'message': 'fatal'}


def waiting(purpose='create', *, subrefs):
    return delayed(purpose, message='None', subrefs=subrefs, retries=2)


def annotate(last_handled=None, **records):
    """Build the annotations of such handlers and sub-handlers (``__`` stands for a slash)."""
    annotations = {
        f'{PREFIX}/{id.replace("__", ".")}': dump(record) for id, record in records.items()
    }
    return (
        annotations
        if last_handled is None
        else {**annotations, LAST_HANDLED: f'{dump(last_handled)}\n'}
    )


def is_clean(body):
    return get_last_handled(body) is not None and not get_progress(body)
