"""
Where the probes are served: the URLs as people write them.
"""

import pytest

from kopf._core.engines.probing import endpoints


@pytest.mark.guarantee('PRB-002', 'NEW-264')
@pytest.mark.parametrize(
    'url, host, port, path',
    [
        pytest.param('http://0.0.0.0:8080/healthz', '0.0.0.0', 8080, '/healthz', id='everything'),
        pytest.param('http://0.0.0.0:1234/', '0.0.0.0', 1234, '/', id='root'),
        pytest.param('http://0.0.0.0:1234', '0.0.0.0', 1234, '/', id='no-path'),
        pytest.param('http://:8080/healthz', 'localhost', 8080, '/healthz', id='no-host'),
        pytest.param('http:///healthz', 'localhost', 80, '/healthz', id='only-path'),
        pytest.param('http://example/healthz', 'example', 80, '/healthz', id='no-port'),
        pytest.param('http://[::1]:8080/healthz', '::1', 8080, '/healthz', id='ipv6'),
        pytest.param('HTTP://Example:8080/Health', 'example', 8080, '/Health', id='cases'),
        pytest.param('http://localhost:8080/a%20b/c', 'localhost', 8080, '/a b/c', id='encoded'),
    ],
)
def test_urls_are_understood(url, host, port, path):
    assert endpoints.parse_endpoint(url) == endpoints.Endpoint(host, port, path)


@pytest.mark.guarantee('PRB-003', 'NEW-264')
@pytest.mark.parametrize(
    'url, text',
    [
        pytest.param('https://localhost:8080/healthz', "not by 'https'", id='https'),
        pytest.param('tcp://localhost:8080', "not by 'tcp'", id='tcp'),
        pytest.param('localhost:8080', "not by 'localhost'", id='no-scheme'),
        pytest.param('/healthz', 'not by an unknown protocol', id='path'),
        pytest.param('http://localhost:http/', 'port', id='port-of-letters'),
        pytest.param('http://localhost:65536/', '65535', id='port-too-big'),
        pytest.param('http://localhost:0/', 'not 0', id='port-zero'),
        pytest.param('http://[::1:8080/', 'not a URL', id='unbalanced'),
        pytest.param('http://user:secret@localhost/', 'no users', id='user'),
        pytest.param('http://localhost/healthz?verbose', 'queries', id='query'),
        pytest.param('http://localhost/healthz#top', 'fragments', id='fragment'),
        pytest.param(8080, 'not a URL', id='number'),
    ],
)
def test_what_cannot_be_served_is_refused(url, text):
    with pytest.raises(endpoints.EndpointError, match=text) as caught:
        endpoints.parse_endpoint(url)

    assert 'secret' not in str(caught.value)


@pytest.mark.parametrize('url', ['http://localhost:8080/healthz', 'http://[::1]:8080/a%20b'])
def test_endpoints_are_shown_as_they_are_written(url):
    assert str(endpoints.parse_endpoint(url)) == url
