"""Certificates are replaced in time, with nobody disturbed."""

import asyncio
import base64
import contextlib
import datetime
import logging
import ssl

import aiohttp
import pytest

from kopf._cogs.helpers import certificates as shared
from kopf._kits.webhooks import servers

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
FOREIGN = shared.issue(
    shared.Profile('localhost', is_authority=True), datetime.datetime.now(datetime.UTC)
)
FOREIGN_CA = shared.issue(
    shared.Profile('foreign-ca', is_authority=True), datetime.datetime.now(datetime.UTC)
)


async def see_certificate(served):
    """Connect anew, and see what is shown there."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection('localhost', served.port, ssl=context)
    try:
        return ssl.DER_cert_to_PEM_cert(
            writer.get_extra_info('ssl_object').getpeercert(True)
        ).encode()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def given(files, **options):
    return {'certfile': files.cert, 'pkeyfile': files.key, 'cafile': files.ca, **options}


@pytest.mark.parametrize(
    'renewal, interval, expected',
    [
        pytest.param(None, None, None, id='never'),
        pytest.param(None, 60.0, 60.0, id='files'),
        pytest.param(NOW + datetime.timedelta(seconds=10), None, 10.0, id='soon'),
        pytest.param(NOW + datetime.timedelta(days=10), None, 3600.0, id='late'),
        pytest.param(NOW + datetime.timedelta(days=10), 60.0, 60.0, id='both'),
        pytest.param(NOW - datetime.timedelta(days=10), None, 1.0, id='overdue'),
    ],
)
def test_certificates_are_looked_at_when_there_can_be_changes(renewal, interval, expected):
    assert servers.choose_delay(renewal, NOW, interval) == expected


def test_authorities_are_trusted_together(make_ca):
    one, two = make_ca('one').pem, make_ca('two').pem.rstrip()

    context = ssl.create_default_context(cadata=servers.join_authorities(two, one).decode())

    assert context.cert_store_stats()['x509_ca'] == 2


@pytest.mark.guarantee('NEW-227', 'NEW-228')
async def test_new_certificate_of_the_same_authority_is_used_and_the_config_is_yielded_again(
    serve, files, make_ca, make_certificate, virtual_time
):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    served = await serve(**given(files))
    config = served.config
    issued = make_certificate(ca)

    files.write(issued, ca)

    assert await served.next() == config
    assert 60.0 <= virtual_time.elapsed < 65.0
    assert await see_certificate(served) == issued.pem


@pytest.mark.guarantee('NEW-228')
async def test_new_authority_is_known_before_its_certificate_is_shown(
    serve, files, make_ca, make_certificate, virtual_time
):
    old, new = make_ca('old'), make_ca('new')
    files.write(old_certificate := make_certificate(old), old)
    served = await serve(**given(files, cadump=files.dump))
    url = served.url

    files.write(new_certificate := make_certificate(new), new)

    await served.next()
    assert served.authority == new.pem + old.pem
    assert await see_certificate(served) == old_certificate.pem
    await served.next()
    assert served.authority == new.pem
    assert await see_certificate(served) == new_certificate.pem
    assert files.dump.read_bytes() == new.pem
    assert served.url == url
    assert 60.0 + servers.OVERLAP <= virtual_time.elapsed < 60.0 + servers.OVERLAP + 10


@pytest.mark.guarantee('NEW-228')
async def test_new_authority_alone_is_yielded(
    serve, files, make_ca, make_certificate, virtual_time
):
    ca, cross = make_ca(), make_ca('cross')
    files.write(make_certificate(ca), ca)
    served = await serve(**given(files))

    files.ca.write_bytes(ca.pem + cross.pem)
    await served.next()
    await served.next()

    assert served.authority == ca.pem + cross.pem


@pytest.mark.guarantee('NEW-229')
async def test_touched_files_change_nothing(serve, files, make_ca, make_certificate, virtual_time):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    served = await serve(**given(files))

    files.cert.write_bytes(files.cert.read_bytes())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await served.next()


@pytest.mark.guarantee('NEW-230')
@pytest.mark.parametrize('options', [{}, {'insecure': True}])
async def test_without_files_nothing_is_replaced_until_the_end_is_near(
    serve, virtual_time, options
):
    served = await serve(**options)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(24 * 3600):
            await served.next()


async def collect(configs, collected):
    async for config in configs:
        collected.append(config)


@pytest.mark.parametrize(
    'spoil',
    [
        pytest.param(lambda files: files.cert.write_bytes(b''), id='emptied-certificate'),
        pytest.param(
            lambda files: files.cert.write_bytes(files.cert.read_bytes()[:-50]),
            id='cut-certificate',
        ),
        pytest.param(
            lambda files: files.key.write_bytes(files.key.read_bytes()[:-50]), id='cut-key'
        ),
        pytest.param(lambda files: files.key.unlink(), id='absent-key'),
        pytest.param(
            lambda files: files.ca.write_bytes(files.ca.read_bytes()[:-50]), id='cut-authority'
        ),
        pytest.param(lambda files: files.key.write_bytes(FOREIGN.export().key), id='foreign-key'),
        pytest.param(lambda files: files.write(FOREIGN, ca=FOREIGN_CA), id='foreign-authority'),
        pytest.param(
            lambda files: files.ca.write_bytes(FOREIGN_CA.pem), id='authority-before-certificate'
        ),
    ],
)
async def test_half_written_files_are_used_when_they_are_whole(
    serve, files, make_ca, make_certificate, virtual_time, caplog, spoil
):
    caplog.set_level(logging.INFO)
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    served = await serve(**given(files))
    configs = []
    collecting = asyncio.create_task(collect(served.configs, configs))

    spoil(files)
    await asyncio.sleep(200)
    complaints = [
        record for record in caplog.records if 'the old one is used' in record.getMessage()
    ]
    assert (len(complaints), configs) == (1, [])
    assert (await served.post())[0] == 200
    files.write(issued := make_certificate(ca), ca)
    await asyncio.sleep(65)

    assert configs == [served.config]
    assert await see_certificate(served) == issued.pem
    assert 'The certificate of the webhook server is replaced' in caplog.text
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_certificate_of_a_given_context_is_replaced_in_it(
    serve, files, make_ca, make_certificate, virtual_time
):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    served = await serve(**given(files, context=context))

    files.write(issued := make_certificate(ca), ca)
    await served.next()

    assert await see_certificate(served) == issued.pem


async def test_own_certificate_is_replaced_before_its_end(serve, monkeypatch, virtual_time):
    monkeypatch.setattr(shared, 'LIFETIME', datetime.timedelta(hours=5))
    served = await serve()
    old, url = served.authority, served.url

    await served.next()
    both = served.authority
    assert await see_certificate(served) == old
    await served.next()
    new = served.authority

    assert both == new + old
    assert new != old
    assert await see_certificate(served) == new
    assert served.url == url
    assert 2.5 * 3600 < virtual_time.elapsed < 4 * 3600


async def test_connections_with_the_old_certificate_are_closed_after_the_next_answer(
    serve, files, make_ca, make_certificate, virtual_time
):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    served = await serve(**given(files))
    tls = served.trust()  # the same one, to reuse the connection

    async with served.request('POST', tls=tls) as before:
        await before.read()
    files.write(make_certificate(ca), ca)
    await served.next()
    async with served.request('POST', tls=tls) as after:
        await after.read()

    assert before.headers.get('Connection') is None
    assert (after.status, after.headers.get('Connection')) == (200, 'close')


class Client:
    """Sends requests all the time, trusting what it was told last."""

    def __init__(self, configs, *, is_persistent):
        self._configs = configs
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=not is_persistent)
        )
        self.is_stopped = False
        self.count = 0

    async def run(self):
        """Send requests until stopped. Any failure is raised."""
        context, trusted = None, None
        async with self._session:
            while not self.is_stopped:
                config = self._configs[-1]
                if config['caBundle'] != trusted:
                    trusted = config['caBundle']
                    context = ssl.create_default_context(cadata=base64.b64decode(trusted).decode())
                async with self._session.post(config['url'], data=b'{}', ssl=context) as response:
                    assert response.status == 200
                    await response.read()
                self.count += 1


@pytest.fixture
async def traffic(serve):
    """Run clients of all kinds, while the certificate of their server is replaced several times."""

    @contextlib.asynccontextmanager
    async def run(server):
        served = await serve(server)
        configs = [served.config]
        clients = [Client(configs, is_persistent=value) for value in (True, False)]
        tasks = [asyncio.create_task(client.run()) for client in clients]
        following = asyncio.create_task(collect(served.configs, configs))

        async def wait_for(count):
            while len(configs) < count and not any(task.done() for task in tasks):
                await asyncio.sleep(0.01)

        try:
            yield wait_for
        finally:
            for client in clients:
                client.is_stopped = True
            await asyncio.wait(tasks)
            following.cancel()
            await asyncio.wait([following])
        await asyncio.gather(*tasks)
        assert all(client.count > 10 for client in clients)
        assert len({config['caBundle'] for config in configs}) == len(configs) == 5

    return run


@pytest.mark.guarantee('NEW-228')
async def test_no_request_fails_while_files_are_replaced(traffic, files, make_ca, make_certificate):
    files.write(make_certificate(ca := make_ca()), ca)

    async with traffic(servers.WebhookServer(**given(files, file_check_interval=0.5))) as wait_for:
        files.write(make_certificate(ca := make_ca()), ca)
        await wait_for(3)
        files.write(make_certificate(ca := make_ca()), ca)
        await wait_for(5)


async def test_no_request_fails_while_own_certificates_are_replaced(traffic, monkeypatch):
    # Of which it is fresh for no time at all.
    monkeypatch.setattr(shared, 'LIFETIME', datetime.timedelta(minutes=20))
    monkeypatch.setattr(servers, 'OVERLAP', 0.5)

    async with traffic(servers.WebhookServer()) as wait_for:
        await wait_for(5)


async def test_authority_that_cannot_be_saved_does_not_make_the_certificate_replaced_again(
    serve, files, make_ca, make_certificate, virtual_time, caplog
):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    served = await serve(**given(files, cadump=files.dump))
    files.dump.unlink()
    files.dump.mkdir()

    with caplog.at_level(logging.INFO):
        files.write(issued := make_certificate(ca), ca)
        await served.next()
        shown = await see_certificate(served)
        waiting = asyncio.create_task(served.next())
        await asyncio.sleep(300)
        waiting.cancel()
        await asyncio.wait([waiting])

    assert shown == issued.pem
    assert caplog.text.count('is replaced') == caplog.text.count('cadump=') == 1
    assert sorted(path.name for path in files.folder.iterdir()) == [
        'ca.pem',
        'cert.pem',
        'dump.pem',
        'key.pem',
    ]


@pytest.mark.guarantee('FND-052')
async def test_no_requests_are_lost_while_certificates_are_replaced_under_load(
    serve, files, make_ca, make_certificate
):
    old, new = make_ca('old'), make_ca('new')
    files.write(make_certificate(old), old)
    served = await serve(**given(files, file_check_interval=0.1))
    context = served.trust(old.pem + new.pem)
    is_over = asyncio.Event()
    statuses = []

    async def load():
        while not is_over.is_set():
            statuses.append((await served.post(tls=context))[0])

    bare = [await asyncio.open_connection('localhost', served.port) for _ in range(600)]
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(load())
        files.write(issued := make_certificate(new), new)
        await served.next()
        await served.next()
        while await see_certificate(served) != issued.pem:
            await asyncio.sleep(0.01)
        is_over.set()
    for _, writer in bare:
        writer.close()

    assert set(statuses) == {200}
