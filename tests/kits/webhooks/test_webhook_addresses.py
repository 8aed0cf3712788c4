"""How the server is called by its clients, and what they ask for."""

import pytest

from kopf._kits.webhooks import addresses


@pytest.mark.guarantee('ADM-066', 'NEW-266')
@pytest.mark.parametrize(
    'host, addr, expected',
    [
        pytest.param(None, None, 'localhost', id='nothing'),
        pytest.param(None, 'localhost', 'localhost', id='name'),
        pytest.param(None, '10.1.2.3', '10.1.2.3', id='address'),
        pytest.param(None, '0.0.0.0', '127.0.0.1', id='all-of-v4'),
        pytest.param(None, '::', '::1', id='all-of-v6'),
        pytest.param(None, '[fd00::1]', 'fd00::1', id='brackets'),
        pytest.param('example.com', '10.1.2.3', 'example.com', id='overridden'),
        pytest.param('[::2]', None, '::2', id='overridden-by-address'),
    ],
)
def test_host_of_urls_is_the_given_one_or_the_address(host, addr, expected):
    assert addresses.choose_host(host, addr) == expected


@pytest.mark.guarantee('ADM-081', 'ADM-065')
@pytest.mark.parametrize(
    'place, expected',
    [
        pytest.param(('https', 'localhost', 9443), 'https://localhost:9443', id='bare'),
        pytest.param(('https', 'localhost', 443), 'https://localhost:443', id='usual-port'),
        pytest.param(('http', '127.0.0.1', 80, '/a/b'), 'http://127.0.0.1:80/a/b', id='path'),
        pytest.param(('https', '::1', 9443, '/a'), 'https://[::1]:9443/a', id='v6'),
        pytest.param(
            ('https', 'x.y', 1, '/a b/%63/ü'), 'https://x.y:1/a%20b/%63/%C3%BC', id='quoted'
        ),
    ],
)
def test_url_has_scheme_host_port_and_path(place, expected):
    assert addresses.Place(*place).url == expected


@pytest.mark.guarantee('ADM-076', 'ADM-074')
@pytest.mark.parametrize(
    'host, addr, extra, expected',
    [
        pytest.param(None, None, (), ['localhost'], id='nothing'),
        pytest.param('x.y', '10.1.2.3', (), ['x.y', '10.1.2.3'], id='both'),
        pytest.param(None, '0.0.0.0', (), ['127.0.0.1', '0.0.0.0'], id='all-of-v4'),
        pytest.param('x.y', 'x.y', ('z', '[::1]'), ['x.y', 'z', '::1'], id='extra'),
    ],
)
def test_certificate_is_for_host_and_address_and_extra_names(host, addr, extra, expected):
    assert addresses.list_hostnames(host, addr, extra) == expected


@pytest.mark.guarantee('ADM-065')
@pytest.mark.parametrize(
    'path, expected',
    [
        (None, ''),
        ('', ''),
        ('/', ''),
        ('a', '/a'),
        ('/a', '/a'),
        ('/a/b/', '/a/b'),
    ],
)
def test_common_path_is_regular(path, expected):
    assert addresses.normalize_path(path) == expected


@pytest.mark.guarantee('ADM-058', 'ADM-021')
@pytest.mark.parametrize(
    'path, prefix, expected',
    [
        pytest.param('/', '', None, id='root'),
        pytest.param('', '', None, id='empty'),
        pytest.param('/fn', '', 'fn', id='id'),
        pytest.param('/fn/spec.field', '', 'fn/spec.field', id='id-with-slash'),
        pytest.param('/fn/', '', 'fn', id='slash-in-the-end'),
        pytest.param('/a/b', '/a/b', None, id='root-of-prefix'),
        pytest.param('/a/b/fn', '/a/b', 'fn', id='id-after-prefix'),
        pytest.param('/a b/fn', '/a%20b', 'fn', id='encoded-prefix'),
    ],
)
def test_webhook_is_what_follows_the_common_path(path, prefix, expected):
    assert addresses.parse_webhook(path, prefix) == expected


@pytest.mark.parametrize('path, prefix', [('/', '/a'), ('/ab', '/a'), ('/b/a', '/a')])
def test_other_paths_are_not_ours(path, prefix):
    with pytest.raises(LookupError):
        addresses.parse_webhook(path, prefix)
