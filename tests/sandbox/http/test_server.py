"""
The server on its port: how it starts and stops, whatever its clients do.
"""

import http.client
import ssl
import urllib.parse

import pytest

import kopf.testing


@pytest.fixture
def connection():
    """A connection that the client keeps open, and does not look at, until the end of the test."""
    opened = []

    def connect(sandbox, path):
        context = ssl.create_default_context(cafile=sandbox.ca_path)
        address = urllib.parse.urlsplit(sandbox.url)
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, context=context, timeout=10
        )
        connection.request('GET', path, headers={'Authorization': f'Bearer {sandbox.token}'})
        opened.append(connection)
        return connection.getresponse()

    yield connect
    for connection in opened:
        connection.close()


def test_server_stops_though_idle_clients_stay_connected(connection):
    with kopf.testing.Sandbox() as sandbox:
        response = connection(sandbox, '/api/v1/namespaces')
        body = response.read()

    assert response.status == 200 and b'"default"' in body


def test_server_stops_though_clients_watch(connection):
    with (
        kopf.testing.Sandbox() as sandbox,
        connection(sandbox, '/api/v1/namespaces?watch=true') as response,
    ):
        first = response.readline()

    assert first.startswith(b'{"type":"ADDED"')


def test_server_stops_though_answers_are_not_read(connection):
    with kopf.testing.Sandbox() as sandbox, connection(sandbox, '/openapi/v2') as response:
        assert response.status == 200
