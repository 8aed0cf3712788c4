"""Vaults give credentials to requests, ask for new ones, and never go round in circles."""

import asyncio
import collections
import datetime

import aiohttp
import pytest

from kopf._cogs.structs import credentials, vaults

EPOCH = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def make(token='token', *, expires_in=None, **fields):
    expiration = (
        None if expires_in is None else read_clock() + datetime.timedelta(seconds=expires_in)
    )
    return credentials.ConnectionInfo(
        server='https://localhost', token=token, expiration=expiration, **fields
    )


def read_clock() -> datetime.datetime:
    """The moment by the (virtual) time of the loop."""
    return EPOCH + datetime.timedelta(seconds=round(asyncio.get_running_loop().time(), 6))


class Item:
    """An object made of credentials."""

    def __init__(self, info):
        self.info, self.closings = info, 0

    async def close(self):
        self.closings += 1
        await asyncio.sleep(0)


class Workshop:
    """
    Makes the objects, and remembers them. With ``gate`` cleared, the making takes until it is set.
    """

    def __init__(self):
        self.items, self.attempts, self.broken = [], 0, set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def make(self, info):
        self.attempts += 1
        await self.gate.wait()
        if info.token in self.broken:
            raise credentials.LoginError(f'Cannot use {info}')
        self.items.append(Item(info))
        return self.items[-1]


@pytest.fixture
async def vault(virtual_time):
    vault = vaults.Vault(now=read_clock)
    yield vault
    await vault.close()


@pytest.fixture
async def workshop():
    return Workshop()


@pytest.fixture
async def spawn():
    """Start a task and let it run until it waits; those left at the end are cancelled."""
    tasks = []

    async def spawn(coroutine):
        tasks.append(asyncio.create_task(coroutine))
        await settle()
        return tasks[-1]

    yield spawn
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def cancel(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.guarantee('NEW-180', 'AUT-026')
async def test_random_credentials_of_the_highest_priority_are_selected(vault):
    await vault.populate(
        {'low': make('low'), 'a': make('a', priority=5), 'b': make('b', priority=5)}
    )

    counts = collections.Counter([(await vault.select())[0] for _ in range(200)])

    assert set(counts) == {'a', 'b'}


@pytest.mark.guarantee('NEW-180')
async def test_lower_priority_is_selected_when_the_highest_is_rejected(vault):
    await vault.populate({'low': make('low'), 'high': make('high', priority=5)})

    await vault.invalidate(*await vault.select())

    assert (await vault.select())[0] == 'low'


async def test_vault_can_be_made_outside_of_a_loop_with_ready_credentials():
    vault = await asyncio.to_thread(lambda: vaults.Vault({'key': make()}))

    assert await vault.select() == ('key', make())


async def test_requests_wait_while_the_vault_is_empty(vault, spawn):
    requests = [await spawn(vault.select()) for _ in range(3)]
    assert not any(request.done() for request in requests)

    await vault.wait_until_needed()
    await vault.populate({'key': make('new')})

    assert await asyncio.gather(*requests) == [('key', make('new'))] * 3


@pytest.mark.guarantee('AUT-027')
async def test_expired_credentials_are_ignored_and_removed(vault, spawn):
    await vault.populate(
        {'soon': make('soon', expires_in=10, priority=5), 'later': make('later', expires_in=20)}
    )

    await asyncio.sleep(9.9)
    before = await vault.select()
    await asyncio.sleep(0.2)
    after = await vault.select()
    await asyncio.sleep(10)

    assert (before[0], after[0]) == ('soon', 'later')
    assert vault.is_empty
    request = await spawn(vault.select())
    assert not request.done()


async def test_expired_credentials_are_not_taken_from_logins(vault, spawn):
    request = await spawn(vault.select())

    with pytest.raises(credentials.LoginError, match="those of 'key' expired"):
        await vault.populate({'key': make(expires_in=-1)})

    with pytest.raises(credentials.LoginError):
        await request


@pytest.mark.guarantee('NEW-183')
async def test_newer_credentials_stay_valid_when_older_ones_are_reported(vault):
    await vault.populate({'key': make('old')})
    await vault.populate({'key': make('new')})

    await vault.invalidate('key', make('old'))

    assert await vault.select() == ('key', make('new'))


@pytest.mark.guarantee('NEW-183')
async def test_credentials_of_other_keys_stay_valid(vault):
    await vault.populate({'one': make('same'), 'two': make('same')})

    await vault.invalidate('one', make('same'))

    assert await vault.select() == ('two', make('same'))


@pytest.mark.guarantee('AUT-030')
async def test_rejected_credentials_are_not_taken_again_and_requests_fail(vault, spawn):
    await vault.populate({'key': make('bad')})
    await vault.invalidate('key', make('bad'), exc=Exception('Unauthorized'))
    request = await spawn(vault.select())

    with pytest.raises(
        credentials.LoginError, match=r"those of 'key' were rejected .* before \(Unauthorized\)\.$"
    ):
        await vault.populate({'key': make('bad', expires_in=100)})

    with pytest.raises(credentials.LoginError, match='no new credentials'):
        await request
    with pytest.raises(credentials.LoginError, match='no new credentials'):
        await vault.select()


@pytest.mark.parametrize('brought', [{}, {'key': None}], ids=['no-handlers', 'nothing-returned'])
async def test_requests_fail_when_nothing_is_brought(vault, spawn, brought):
    request = await spawn(vault.select())

    with pytest.raises(credentials.LoginError, match='no credentials are brought'):
        await vault.populate(brought)

    with pytest.raises(credentials.LoginError, match='no credentials are brought'):
        await request


async def test_requests_fail_with_the_error_of_the_login_until_another_one(vault, spawn):
    request = await spawn(vault.select())

    vault.fail(credentials.LoginError('Tried this and that.'))

    with pytest.raises(credentials.LoginError, match='Tried this and that'):
        await request
    with pytest.raises(credentials.LoginError, match='Tried this and that'):
        await vault.select()
    await vault.populate({'key': make()})
    assert await vault.select() == ('key', make())


@pytest.mark.guarantee('NEW-184')
async def test_three_latest_rejected_credentials_are_remembered(vault):
    for token in ['a', 'b', 'c', 'd']:
        await vault.populate({'key': make(token)})
        await vault.invalidate('key', make(token))
        await vault.invalidate('key', make(token))

    for token in ['b', 'c', 'd']:
        with pytest.raises(credentials.LoginError):
            await vault.populate({'key': make(token)})
    await vault.populate({'key': make('a')})
    assert await vault.select() == ('key', make('a'))


@pytest.mark.guarantee('NEW-173')
async def test_other_types_are_refused_with_nothing_changed(vault):
    with pytest.raises(
        ValueError, match=r"The login handler 'two' must return kopf.ConnectionInfo, .* not dict"
    ):
        await vault.populate({'one': make(), 'two': {'server': 'https://localhost'}})

    assert vault.is_empty


async def test_many_rejections_at_once_need_one_login(vault, spawn):
    logins = []

    async def log_in():
        while True:
            await vault.wait_until_needed()
            logins.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)
            await vault.populate({'key': make(f'token{len(logins)}')})

    async def request():
        while True:
            key, info = await vault.select()
            await asyncio.sleep(0.1)  # the time of the request
            if info.token != 'token1':
                return info.token
            await vault.invalidate(key, info)

    await spawn(log_in())
    tokens = await asyncio.gather(*[request() for _ in range(20)])

    assert set(tokens) == {'token2'}
    assert len(logins) == 2


async def test_login_is_not_needed_while_nobody_waits(vault, spawn):
    needed = await spawn(vault.wait_until_needed())
    await asyncio.sleep(1000)
    assert not needed.done()

    await spawn(vault.select())

    assert needed.done()


async def test_login_is_not_needed_after_the_only_request_is_cancelled(vault, spawn):
    request = await spawn(vault.select())
    await cancel(request)

    needed = await spawn(vault.wait_until_needed())

    assert not needed.done()


async def test_cancelled_wait_for_the_need_leaves_the_need(vault, spawn):
    needed = await spawn(vault.wait_until_needed())
    await cancel(needed)
    await spawn(vault.select())

    await vault.wait_until_needed()


async def test_cancelled_request_affects_no_other(vault, spawn):
    cancelled, waiting = await spawn(vault.select()), await spawn(vault.select())

    await cancel(cancelled)
    await vault.populate({'key': make()})

    assert await waiting == ('key', make())


async def test_logins_are_delayed_and_given_up_when_new_credentials_are_rejected_soon(
    vault, virtual_time, spawn
):
    logins = []

    async def log_in():
        while True:
            await vault.wait_until_needed()
            logins.append(virtual_time.elapsed)
            await vault.populate({'key': make(f'token{len(logins)}')})

    async def request():
        while True:
            await vault.invalidate(*await vault.select(), exc=Exception('Unauthorized'))

    login = await spawn(log_in())
    with pytest.raises(
        credentials.LoginError, match=r'were rejected 8 times in a row \(Unauthorized\)'
    ):
        await request()

    assert logins == pytest.approx([0, 0, 1, 3, 7, 15, 31, 63], abs=0.01)
    with pytest.raises(credentials.LoginError, match='8 times in a row'):
        await login


async def test_cancelled_delay_of_a_login_leaves_the_need(vault, virtual_time, spawn):
    for token in 'ab':
        await vault.populate({'key': make(token)})
        await vault.invalidate('key', make(token))
    await spawn(vault.select())

    delayed = await spawn(vault.wait_until_needed())
    await cancel(delayed)
    await vault.wait_until_needed()

    assert virtual_time.elapsed == 1.0


@pytest.mark.parametrize('expires_in', [61, None], ids=['expired', 'rejected'])
async def test_logins_are_not_delayed_when_credentials_have_served(
    vault, virtual_time, spawn, expires_in
):
    for token in 'abcdefghijkl':
        await vault.populate({'key': make(token, expires_in=expires_in)})
        await asyncio.sleep(61)
        await vault.invalidate('key', make(token))
        request = await spawn(vault.select())
        since = virtual_time.elapsed
        await vault.wait_until_needed()
        await cancel(request)

        assert virtual_time.elapsed == since


async def test_object_is_made_once_for_all_tasks(vault, workshop, spawn):
    await vault.populate({'key': make()})
    workshop.gate.clear()

    async def request():
        async with vault.extended(workshop.make) as lease:
            return lease

    requests = [await spawn(request()) for _ in range(3)]
    workshop.gate.set()
    leases = await asyncio.gather(*requests)

    assert leases == [vaults.Lease('key', make(), workshop.items[0])] * 3
    assert len(workshop.items) == 1
    assert workshop.items[0].closings == 0


async def test_objects_are_closed_when_credentials_are_rejected_even_if_leased(vault, workshop):
    await vault.populate({'key': make()})

    async with vault.extended(workshop.make) as lease:
        await vault.invalidate(lease.key, lease.info)

        assert lease.item.closings == 1


@pytest.mark.parametrize('ending', ['rejected', 'replaced', 'expired', 'closed'])
async def test_custom_sessions_are_closed_with_their_credentials_even_if_never_used(vault, ending):
    expiration = read_clock() + datetime.timedelta(seconds=10)
    session = aiohttp.ClientSession()
    info = credentials.AiohttpSession(
        server='https://localhost', aiohttp_session=session, expiration=expiration
    )
    await vault.populate({'key': info})

    if ending == 'rejected':
        await vault.invalidate(*await vault.select())
    elif ending == 'replaced':
        await vault.populate({'key': make()})
    elif ending == 'expired':
        await vault.populate({'other': make()})
        await asyncio.sleep(11)
        await vault.select()
    else:
        await vault.close()

    assert session.closed


async def test_objects_of_expired_credentials_live_while_leased(vault, workshop):
    await vault.populate({'key': make('old', expires_in=10)})

    async with vault.extended(workshop.make) as old:
        await asyncio.sleep(11)
        await vault.populate({'key': make('new')})
        async with vault.extended(workshop.make) as new:
            assert old.item is not new.item
            assert old.item.closings == 0

    assert old.item.closings == 1
    assert new.item.closings == 0


async def test_objects_of_expired_credentials_are_closed_when_not_leased(vault, workshop):
    await vault.populate({'key': make('old', expires_in=10, priority=5), 'other': make('other')})
    async with vault.extended(workshop.make) as lease:
        pass
    await asyncio.sleep(11)

    key, _ = await vault.select()

    assert key == 'other'
    assert lease.info.token == 'old'
    assert lease.item.closings == 1


async def test_prolonged_credentials_keep_their_objects(vault, workshop):
    await vault.populate({'key': make(expires_in=60)})
    async with vault.extended(workshop.make) as streaming:
        for _ in range(10):
            await asyncio.sleep(61)
            await vault.populate({'key': make(expires_in=60)})
            async with vault.extended(workshop.make) as lease:
                assert lease.item is streaming.item
                assert lease.item.closings == 0


async def test_prolonged_credentials_keep_their_objects_when_not_leased(vault, workshop, spawn):
    await vault.populate({'key': make(expires_in=60)})
    async with vault.extended(workshop.make) as before:
        pass
    await asyncio.sleep(61)
    request = await spawn(vault.select())
    await vault.populate({'key': make(expires_in=60)})
    await request

    async with vault.extended(workshop.make) as after:
        assert after.item is before.item
        assert after.item.closings == 0


async def test_prolonged_credentials_can_be_rejected_by_those_who_took_them_before(vault, workshop):
    await vault.populate({'key': make(expires_in=60)})
    key, info = await vault.select()
    await vault.populate({'key': make(expires_in=120)})

    await vault.invalidate(key, info)

    assert vault.is_empty


async def test_credentials_are_rejected_when_nothing_can_be_made_of_them(vault, workshop):
    workshop.broken.add('bad')
    await vault.populate({'bad': make('bad', priority=5), 'good': make('good')})

    async with vault.extended(workshop.make) as lease:
        assert lease.key == 'good'

    async with vault.extended(workshop.make):
        assert workshop.attempts == 2


async def test_failures_of_making_are_explained_when_nothing_else_is_brought(
    vault, workshop, spawn
):
    workshop.broken.add('bad')
    await vault.populate({'key': make('bad')})

    async def request():
        async with vault.extended(workshop.make):
            pass

    requests = [await spawn(request()) for _ in range(3)]
    with pytest.raises(
        credentials.LoginError, match=r'Cannot use ConnectionInfo\(.*token=<hidden>'
    ):
        await vault.populate({'key': make('bad')})

    for waiting in requests:
        with pytest.raises(credentials.LoginError, match='Cannot use'):
            await waiting
    assert workshop.attempts == 1


async def test_other_errors_of_making_are_raised_and_leave_the_credentials(vault):
    async def fail(info):
        raise ZeroDivisionError

    await vault.populate({'key': make()})

    with pytest.raises(ZeroDivisionError):
        async with vault.extended(fail):
            pass

    assert not vault.is_empty


@pytest.mark.parametrize(
    'cancelled, attempts', [pytest.param(0, 2, id='maker'), pytest.param(1, 1, id='waiter')]
)
async def test_cancelled_making_affects_no_other_task(vault, workshop, spawn, cancelled, attempts):
    await vault.populate({'key': make(expires_in=60)})
    workshop.gate.clear()

    async def request():
        async with vault.extended(workshop.make) as lease:
            return lease.item

    requests = [await spawn(request()), await spawn(request())]
    await cancel(requests.pop(cancelled))
    workshop.gate.set()
    item = await requests[0]

    assert workshop.attempts == attempts
    await vault.populate({'key': make('new')})
    assert item.closings == 1  # no lease was left by the cancelled one


async def test_object_made_too_late_is_closed_and_others_are_taken(vault, workshop, spawn):
    await vault.populate({'key': make('old')})
    workshop.gate.clear()

    async def request():
        async with vault.extended(workshop.make) as lease:
            return lease.info.token

    waiting = await spawn(request())
    await vault.invalidate('key', make('old'))
    await vault.populate({'key': make('new')})
    workshop.gate.set()

    assert await waiting == 'new'
    assert [(item.info.token, item.closings) for item in workshop.items] == [('old', 1), ('new', 0)]


@pytest.mark.parametrize('ending', ['cancelled', 'failed'])
async def test_lease_ends_with_its_request_however_it_ends(vault, workshop, spawn, ending):
    await vault.populate({'key': make('old')})
    proceed = asyncio.Event()

    async def request():
        async with vault.extended(workshop.make):
            await proceed.wait()
            raise ZeroDivisionError

    requesting = await spawn(request())
    await vault.populate({'key': make('new')})
    assert workshop.items[0].closings == 0
    if ending == 'cancelled':
        await cancel(requesting)
    else:
        proceed.set()
        with pytest.raises(ZeroDivisionError):
            await requesting

    assert workshop.items[0].closings == 1


class SlowItem(Item):
    """An object that is being closed until it is let go."""

    def __init__(self, info):
        super().__init__(info)
        self.gate = asyncio.Event()

    async def close(self):
        await self.gate.wait()
        await super().close()


async def make_slow(info):
    return SlowItem(info)


async def test_cancelled_closing_is_finished_later(vault, spawn):
    await vault.populate({'key': make('old')})
    async with vault.extended(make_slow) as lease:
        pass

    rejecting = await spawn(vault.invalidate('key', make('old')))
    assert vault.is_empty
    await cancel(rejecting)
    lease.item.gate.set()
    await vault.populate({'key': make('new')})

    assert lease.item.closings == 1


async def test_cancelled_population_is_in_effect_already(vault, spawn):
    await vault.populate({'key': make('old')})
    async with vault.extended(make_slow) as lease:
        pass

    populating = await spawn(vault.populate({'key': make('new')}))
    await cancel(populating)
    lease.item.gate.set()

    assert await vault.select() == ('key', make('new'))
    assert lease.item.closings == 1


async def test_cancelled_closing_of_the_vault_can_be_repeated(vault, spawn):
    await vault.populate({'key': make()})
    async with vault.extended(make_slow) as lease:
        pass

    closing = await spawn(vault.close())
    await cancel(closing)
    lease.item.gate.set()
    await vault.close()

    assert lease.item.closings == 1


async def test_endless_closing_is_given_up(vault, virtual_time, caplog):
    await vault.populate({'key': make()})
    async with vault.extended(make_slow):
        pass

    await vault.close()

    assert virtual_time.elapsed == vaults.CLOSING_TIMEOUT
    assert caplog.messages == ['Closing of SlowItem has failed, and is given up: TimeoutError()']


async def test_closed_vault_fails_those_who_wait_for_credentials(vault, spawn):
    request = await spawn(vault.select())

    await vault.close()

    with pytest.raises(credentials.LoginError, match='is closed'):
        await request


async def test_closed_vault_fails_those_who_wait_for_the_need(vault, spawn):
    needed = await spawn(vault.wait_until_needed())

    await vault.close()

    with pytest.raises(credentials.LoginError, match='is closed'):
        await needed


async def test_closed_vault_fails_everyone_who_comes(vault):
    await vault.populate({'key': make()})

    await vault.close()

    assert vault.is_closed
    assert vault.is_empty
    for coming in vault.select(), vault.wait_until_needed(), vault.populate({'key': make()}):
        with pytest.raises(credentials.LoginError, match='is closed'):
            await coming
