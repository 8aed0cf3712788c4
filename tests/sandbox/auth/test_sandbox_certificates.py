"""
The certificates of the sandbox are accepted by strict verifiers, and tell who the clients are.
"""

import asyncio
import datetime
import os
import ssl
import sys
import tempfile

import pytest

from kopf._sandbox import options
from kopf._sandbox.auth import certificates

NOW = datetime.datetime.now(datetime.UTC)
CA = certificates.make_ca(NOW)
SERVER = certificates.issue_server(CA, certificates.LOCAL_HOSTS, NOW)


def build_client_context(ca: bytes = CA.pem) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def talk(
    client: ssl.SSLContext, server: ssl.SSLContext, host: str = 'localhost'
) -> dict[str, object]:
    """Connect once; return the client's certificate as the server sees it."""
    seen: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info('peercert') or {})
        writer.write(b'hello')
        writer.close()

    listener = await asyncio.start_server(serve, '127.0.0.1', 0, ssl=server)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            '127.0.0.1', port, ssl=client, server_hostname=host
        )
        assert await reader.read() == b'hello'
        writer.close()
        await writer.wait_closed()
    return await seen


@pytest.mark.parametrize('host', certificates.LOCAL_HOSTS)
async def test_server_is_trusted_strictly_under_all_its_names(host):
    server = certificates.build_server_context(SERVER, CA.pem)

    peer = await talk(build_client_context(), server, host)

    assert peer == {}


async def test_client_certificate_shows_user_and_groups():
    pair = certificates.issue_client(CA, 'jane', ['system:masters', 'devs'], NOW)
    client = build_client_context()
    certificates.load_pair(client, pair)

    peer = await talk(client, certificates.build_server_context(SERVER, CA.pem))

    assert peer['subject'] == (
        (('organizationName', 'system:masters'),),
        (('organizationName', 'devs'),),
        (('commonName', 'jane'),),
    )


async def test_server_is_not_trusted_under_foreign_names():
    server = certificates.build_server_context(SERVER, CA.pem)

    with pytest.raises(ssl.SSLCertVerificationError, match='Hostname mismatch'):
        await talk(build_client_context(), server, 'example.com')


async def test_server_of_another_authority_is_not_trusted():
    another = certificates.make_ca(NOW)

    with pytest.raises(ssl.SSLCertVerificationError):
        await talk(
            build_client_context(another.pem), certificates.build_server_context(SERVER, CA.pem)
        )


def test_old_versions_of_tls_are_refused():
    context = certificates.build_server_context(SERVER, CA.pem)

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_keys_are_neither_left_on_disk_nor_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))

    certificates.build_server_context(SERVER, CA.pem)

    assert os.listdir(tmp_path) == []
    assert 'PRIVATE' not in repr(SERVER)
    assert 'key' not in repr(CA)


def test_missing_library_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cryptography', None)

    with pytest.raises(options.MissingLibraryError, match=r'pip install cryptography google-re2$'):
        certificates.make_ca(NOW)
