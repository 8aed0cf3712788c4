"""
Certificates, as the webhook servers look into them: they are understood, or refused with a
`ValueError`.
"""

import base64

from kopf._kits.webhooks import facts


def check(source: bytes) -> None:
    _check(facts.read_pem, source)
    _check(facts.read_der, source)
    try:
        _check(facts.read_der, base64.b64decode(source))
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
