"""
Certificates, as the webhook servers look into them: they are understood, or refused with a
`ValueError`.
"""

import base64

from kopf._kits.webhooks import x509_fields


def check(source: bytes) -> None:
    _check(x509_fields.read_pem, source)
    _check(x509_fields.read_der, source)
    try:
        _check(x509_fields.read_der, base64.b64decode(source))
    except ValueError:
        pass


def _check(read, source: bytes) -> None:
    try:
        found = read(source)
    except ValueError as error:
        assert str(error)
    else:
        assert found.since.tzinfo is not None
        assert all(isinstance(name, str) for name in found.names)
