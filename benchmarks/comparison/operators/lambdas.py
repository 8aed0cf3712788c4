"""A handler whose id is made of the path to the file, and another one, so that their progress is recorded."""

from recording import record

import kopf

kopf.on.create('kopfexamples')(lambda **kwargs: record('lambda', **kwargs))


@kopf.on.create('kopfexamples')
def other(**kwargs):
    record('other', **kwargs)
