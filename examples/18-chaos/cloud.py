"""A cloud with buckets: anything outside of the cluster that an operator takes care of."""

import itertools

buckets = {}  # by their ids: the tags, and the size
_numbers = itertools.count(1)


class NotFoundError(Exception):
    pass


def create_bucket(tag, size):
    bucket = f'bucket-{next(_numbers)}'
    buckets[bucket] = {'tag': tag, 'size': size}
    return bucket


def find_bucket(tag):
    return next((bucket for bucket, details in buckets.items() if details['tag'] == tag), None)


def resize_bucket(bucket, size):
    _check(bucket)
    buckets[bucket]['size'] = size


def delete_bucket(bucket):
    _check(bucket)
    del buckets[bucket]


def _check(bucket):
    if bucket not in buckets:
        raise NotFoundError(f'There is no {bucket}.')
