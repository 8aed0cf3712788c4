"""
An operator with one trivial admission handler, which is called directly.

It is the same for all frameworks. ``$BENCH_PORT`` is the port to listen on; ``$BENCH_CERTFILE`` and
``$BENCH_PKEYFILE`` are the certificate, if any.
"""

import os

import kopf

CERTFILE, PKEYFILE = os.environ.get('BENCH_CERTFILE'), os.environ.get('BENCH_PKEYFILE')
CERTIFICATE = {'certfile': CERTFILE, 'pkeyfile': PKEYFILE} if CERTFILE else {'insecure': True}


@kopf.on.startup()
async def configure(settings, **_):
    settings.posting.enabled = False
    settings.admission.server = kopf.WebhookServer(
        addr='127.0.0.1', port=int(os.environ['BENCH_PORT']), **CERTIFICATE
    )


@kopf.on.validate('bench.dev', 'v1', 'loads')
async def check(spec, **_):
    if spec.get('replicas') != 1:
        raise kopf.AdmissionError('There must be one.')
