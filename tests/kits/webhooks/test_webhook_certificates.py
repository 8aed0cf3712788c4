"""Certificates of servers: made, read, and trusted."""

import datetime
import ipaddress
import os
import ssl
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import oid

from kopf._cogs.helpers import certificates as shared
from kopf._kits.webhooks import certificates, server_options, servers, x509_fields

NOW = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def parse(pem):
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    [common] = certificate.subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    return (
        common.value,
        names.get_values_for_type(x509.DNSName),
        names.get_values_for_type(x509.IPAddress),
    )


def obtain(**given):
    return certificates.Source(
        server_options.ServerOptions(**given), ['localhost'], certificates.build_certificate
    ).obtain()


@pytest.mark.guarantee('ADM-077', 'ADM-078', 'ADM-079', 'ADM-080', 'ADM-076')
@pytest.mark.parametrize(
    'hostnames, common, dns, ips',
    [
        pytest.param(['x.y', 'z'], 'x.y', ['x.y', 'z'], [], id='names'),
        pytest.param(['10.0.0.1', 'x.y'], 'x.y', ['x.y'], ['10.0.0.1'], id='address-before-name'),
        pytest.param(
            ['10.0.0.1', '10.0.0.2'], '10.0.0.1', [], ['10.0.0.1', '10.0.0.2'], id='addresses'
        ),
        pytest.param(['0:0::0001', '[::2]'], '::1', [], ['::1', '::2'], id='normalised'),
        pytest.param(['0.0.0.0', '::', 'x.y'], 'x.y', ['x.y'], [], id='magic'),
        pytest.param(['x.y', 'x.y', '', ' '], 'x.y', ['x.y'], [], id='repeated-and-empty'),
        pytest.param(
            ['bücher.example'],
            'xn--bcher-kva.example',
            ['xn--bcher-kva.example'],
            [],
            id='international',
        ),
        pytest.param(
            ['a' * 60 + '.example'],
            ('a' * 60 + '.example')[:64],
            ['a' * 60 + '.example'],
            [],
            id='long',
        ),
    ],
)
def test_certificate_is_for_all_names_and_addresses(hostnames, common, dns, ips):
    certificate, key = servers.WebhookServer.build_certificate(hostnames)

    assert parse(certificate) == (common, dns, [ipaddress.ip_address(ip) for ip in ips])
    assert serialization.load_pem_private_key(key, None).public_key() == (
        x509.load_pem_x509_certificate(certificate).public_key()
    )


@pytest.mark.guarantee('ADM-080')
def test_certificate_is_for_something():
    with pytest.raises(ValueError, match='no host names'):
        servers.WebhookServer.build_certificate(['0.0.0.0'])


@pytest.mark.guarantee('ADM-070', 'ADM-077')
def test_generated_key_is_encrypted_with_the_password():
    _, key = servers.WebhookServer.build_certificate(['x.y'], 's3cret')

    assert b'ENCRYPTED' in key
    assert serialization.load_pem_private_key(key, b's3cret') is not None


@pytest.mark.guarantee('ADM-004')
def test_absence_of_the_library_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cryptography', None)

    with pytest.raises(
        server_options.MissingLibraryError,
        match=r"'cryptography'.*pip install cryptography\).*certfile=.*insecure=True",
    ):
        obtain()


@pytest.mark.guarantee('ADM-001', 'ADM-002', 'ADM-003')
def test_library_is_not_needed_for_given_certificates_and_for_plain_http(
    files, make_certificate, monkeypatch
):
    files.write(make_certificate())
    for name in [name for name in sys.modules if name.partition('.')[0] == 'cryptography']:
        monkeypatch.setitem(sys.modules, name, None)

    assert obtain(certfile=files.cert, pkeyfile=files.key).activate() is not None
    assert obtain(insecure=True).activate() is None


def test_facts_are_those_of_the_certificate():
    ca = shared.issue(shared.Profile('the-ca', ['An Organization'], is_authority=True), NOW)
    profile = shared.Profile('the-name', hosts=['x.y', '10.0.0.1'], purpose=shared.Purpose.SERVER)
    issued = shared.issue(profile, NOW, ca)

    told = x509_fields.read_pem(b'something before\n' + issued.pem + ca.pem)

    assert told.names == {'the-ca', 'An Organization', 'the-name', 'x.y'}
    assert (told.since, told.until) == (
        NOW - datetime.timedelta(hours=1),
        NOW + datetime.timedelta(days=365),
    )
    assert not told.is_self_signed
    assert x509_fields.read_pem(ca.pem).is_self_signed


@pytest.mark.parametrize('year', [1970, 2049, 2050, 2150])
def test_facts_have_dates_in_both_notations(year):
    moment = datetime.datetime(year, 6, 7, 8, 9, 10, tzinfo=datetime.UTC)

    told = x509_fields.read_pem(shared.issue(shared.Profile('x'), moment).pem)

    assert told.since == moment - datetime.timedelta(hours=1)


def test_facts_are_not_read_of_anything_else(make_certificate):
    der = ssl.PEM_cert_to_DER_cert(make_certificate().pem.decode())
    for garbage in [
        b'',
        b'\x30',
        b'\x30\x80',
        b'hello',
        b'\x30\x03\x30\x01\x02',
        *(der[:size] for size in range(99)),
    ]:
        with pytest.raises(ValueError):
            x509_fields.read_der(garbage)
    with pytest.raises(ValueError):
        x509_fields.read_pem(b'hello')


@pytest.mark.guarantee('ADM-072')
def test_given_certificate_of_an_authority_is_trusted_by_the_default_chain(
    files, make_ca, make_certificate
):
    ca = make_ca()
    files.write(make_certificate(ca), ca)

    assert obtain(certfile=files.cert, pkeyfile=files.key).authority is None


def test_given_certificate_signed_by_itself_is_its_own_authority_but_not_its_key(
    files, make_certificate
):
    issued = make_certificate()
    files.both.write_bytes(issued.export().key + issued.pem)

    assert obtain(certfile=files.both).authority == issued.pem


@pytest.mark.guarantee('ADM-071')
def test_given_authority_is_only_for_the_clients(files, make_ca, make_certificate):
    ca = make_ca()
    files.write(make_certificate(ca), ca)

    by_file = obtain(certfile=files.cert, pkeyfile=files.key, cafile=files.ca)
    by_data = obtain(certfile=files.cert, pkeyfile=files.key, cadata=ca.pem)

    assert by_file.authority == by_data.authority == ca.pem
    assert by_file.activate().cert_store_stats()['x509'] == 0


@pytest.mark.guarantee('ADM-068')
def test_own_certificate_is_its_own_authority_and_is_renewed_long_before_its_end():
    identity = obtain()

    told = x509_fields.read_pem(identity.authority)
    assert told.is_self_signed
    assert told.since < identity.renewal < told.until - datetime.timedelta(days=90)


def test_private_keys_are_not_left_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))

    obtain().activate()

    assert not os.listdir(tmp_path)


def test_given_context_with_a_certificate_is_used_as_it_is(files, make_ca, make_certificate):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)

    identity = obtain(context=context, cafile=files.ca)

    assert identity.activate() is context
    assert certificates.find_certificate(context) == ssl.PEM_cert_to_DER_cert(
        files.cert.read_text()
    )
    assert identity.authority == ca.pem
    assert identity.renewal is None


@pytest.mark.parametrize('mode', [ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
def test_given_context_without_a_certificate_gets_one(mode):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = mode

    identity = obtain(context=context)

    assert certificates.find_certificate(context) is None
    assert identity.activate() is context
    assert certificates.find_certificate(context) == ssl.PEM_cert_to_DER_cert(
        identity.authority.decode()
    )


def test_given_context_gets_the_given_certificate(files, make_certificate):
    files.write(make_certificate())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    obtain(context=context, certfile=files.cert, pkeyfile=files.key).activate()

    assert certificates.find_certificate(context) == ssl.PEM_cert_to_DER_cert(
        files.cert.read_text()
    )


def test_given_context_of_clients_is_refused():
    with pytest.raises(
        server_options.CertificateError, match=r'context= is of clients.*Purpose\.CLIENT_AUTH'
    ):
        obtain(context=ssl.create_default_context())


def test_tls_is_of_the_safe_versions():
    context = obtain().activate()

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.guarantee('ADM-075')
@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param({'verify_mode': ssl.CERT_REQUIRED}, ssl.CERT_REQUIRED, id='required'),
        pytest.param({'verify_mode': ssl.CERT_OPTIONAL}, ssl.CERT_OPTIONAL, id='optional'),
        pytest.param({'verify_mode': ssl.CERT_NONE}, ssl.CERT_NONE, id='none'),
        pytest.param({}, ssl.CERT_OPTIONAL, id='unsaid'),
    ],
)
@pytest.mark.parametrize('source', ['file', 'folder', 'text', 'bytes'])
def test_verification_of_clients_goes_to_the_context(files, make_ca, given, expected, source):
    files.ca.write_bytes(make_ca().pem)
    source_options = {
        'file': {'verify_cafile': files.ca},
        'folder': {'verify_capath': files.folder},
        'text': {'verify_cadata': files.ca.read_text()},
        'bytes': {'verify_cadata': files.ca.read_bytes()},
    }[source]

    context = obtain(**given, **source_options).activate()

    assert context.verify_mode is expected
    assert context.cert_store_stats()['x509_ca'] == (0 if source == 'folder' else 1)


@pytest.mark.parametrize(
    'spoil, given, complaint',
    [
        pytest.param(
            lambda files: files.cert.unlink(),
            {},
            "Cannot read certfile='.*': No such file",
            id='no-cert',
        ),
        pytest.param(
            lambda files: files.key.unlink(),
            {},
            "Cannot read pkeyfile='.*key.pem': No such file",
            id='no-key',
        ),
        pytest.param(
            lambda files: files.ca.unlink(),
            {},
            "Cannot read cafile='.*ca.pem': No such file",
            id='no-ca',
        ),
        pytest.param(
            lambda files: files.cert.write_text('x'),
            {},
            "Cannot use certfile='.*' with pkeyfile='",
            id='cert',
        ),
        pytest.param(
            lambda files: files.key.write_text('x'),
            {},
            "Cannot use certfile='.*' with pkeyfile='.*'",
            id='key',
        ),
        pytest.param(
            lambda files: None,
            {'pkeyfile': None},
            "no private key in certfile='.*': add pkeyfile",
            id='keyless',
        ),
        pytest.param(
            lambda files: files.key.write_bytes(
                shared.issue(shared.Profile('x'), NOW).export().key
            ),
            {},
            'Cannot use .*: key values mismatch',
            id='foreign-key',
        ),
        pytest.param(
            lambda files: files.key.write_bytes(
                shared.issue(shared.Profile('x'), NOW).export('p').key
            ),
            {},
            'is encrypted: add password=',
            id='encrypted-key',
        ),
        pytest.param(
            lambda files: None,
            {'verify_cadata': 'x'},
            'Cannot use verify_cafile=',
            id='verify-data',
        ),
        pytest.param(
            lambda files: None,
            {'verify_cafile': '/nowhere'},
            'Cannot use verify_.*: No such file',
            id='verify',
        ),
    ],
)
def test_unusable_files_are_told_about(files, make_certificate, spoil, given, complaint):
    files.write(make_certificate())
    spoil(files)

    with pytest.raises(server_options.CertificateError, match=complaint):
        obtain(**({'certfile': files.cert, 'pkeyfile': files.key, 'cafile': files.ca} | given))


@pytest.mark.guarantee('ADM-070')
def test_password_decrypts_the_given_key_and_is_never_told(files, make_certificate):
    issued = make_certificate()
    files.write(issued)
    files.key.write_bytes(issued.export('s3cret').key)

    obtain(certfile=files.cert, pkeyfile=files.key, password='s3cret').activate()
    with pytest.raises(server_options.CertificateError) as error:
        obtain(certfile=files.cert, pkeyfile=files.key, password='wr0ng')

    assert 'wr0ng' not in str(error.value)


@pytest.mark.guarantee('NEW-229')
def test_files_are_outdated_by_contents_and_not_by_times(files, make_certificate):
    files.write(make_certificate())
    given = server_options.ServerOptions(certfile=files.cert, pkeyfile=files.key, cafile=files.ca)
    source = certificates.Source(given, [], certificates.build_certificate)
    identity = source.obtain()

    for path in (files.cert, files.key, files.ca):
        os.utime(path, (1, 1))
    assert not source.is_outdated(identity, NOW)
    for path in (files.cert, files.key, files.ca):
        content, times = path.read_bytes(), os.stat(path)
        path.write_bytes(content[::-1])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert source.is_outdated(identity, NOW)
        path.write_bytes(content)
        assert not source.is_outdated(identity, NOW)


@pytest.mark.parametrize(
    'pem, expected',
    [
        pytest.param(lambda pem: pem, True, id='one'),
        pytest.param(lambda pem: pem * 2, True, id='two'),
        pytest.param(lambda pem: pem[:-10], False, id='cut'),
        pytest.param(lambda pem: pem + pem[:30], False, id='cut-second'),
        pytest.param(lambda pem: b'', False, id='empty'),
        pytest.param(lambda pem: b'hello', False, id='garbage'),
        pytest.param(lambda pem: b'\xff', False, id='binary'),
    ],
)
def test_authorities_are_whole_certificates(make_ca, pem, expected):
    assert certificates.is_authority(pem(make_ca().pem)) is expected


@pytest.mark.parametrize(
    'given, problem',
    [
        pytest.param(lambda files: {'cafile': files.ca}, None, id='right'),
        pytest.param(lambda files: {}, None, id='well-known'),
        pytest.param(lambda files: {'cafile': files.other}, 'not signed by cafile=', id='other'),
        pytest.param(
            lambda files: {'cadata': files.other.read_bytes()},
            'not signed by cadata=',
            id='other-data',
        ),
        pytest.param(
            lambda files: {'cadata': b'hello'}, 'no certificates in cadata=', id='garbage'
        ),
    ],
)
def test_certificates_of_other_authorities_are_noticed(
    files, make_ca, make_certificate, given, problem
):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    files.other.write_bytes(make_ca().pem)

    identity = obtain(certfile=files.cert, pkeyfile=files.key, **given(files))

    assert identity.problem is None if problem is None else problem in identity.problem


def test_expired_certificates_are_noticed(files):
    issued = shared.issue(
        shared.Profile('localhost', is_authority=True), NOW - datetime.timedelta(days=3000)
    )
    files.write(issued)

    assert 'not valid now' in obtain(certfile=files.cert, pkeyfile=files.key).problem
