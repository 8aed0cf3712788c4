"""A handler whose id includes the path of the file, and another one, to have progress recorded."""

from recording import record

import kopf

kopf.on.create('kopfexamples')(lambda **kwargs: record('lambda', **kwargs))


@kopf.on.create('kopfexamples')
def other(**kwargs):
    record('other', **kwargs)
