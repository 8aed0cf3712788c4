"""
Credentials with files: certificates are rotated at the same paths, and can be absent for a moment
meanwhile.
"""

import asyncio

import pytest

from kopf._cogs.structs import credentials, vaults


class Item:
    is_closed = False

    async def close(self):
        self.is_closed = True


class Workshop:
    """Makes objects of credentials if the certificate is there."""

    async def make(self, info):
        try:
            info.ca_path.read_bytes()
        except OSError as error:
            raise credentials.LoginError(f'Cannot load: {error.strerror}') from error
        return Item()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / 'ca.crt'
    path.write_bytes(b'old')
    return path


@pytest.fixture
async def vault(virtual_time):
    vault = vaults.Vault()
    yield vault
    await vault.close()


@pytest.fixture
def log_in(path):
    """Return what login handlers do: always the same, as it seems."""

    def log_in():
        return {'key': credentials.ConnectionInfo(server='https://localhost', ca_path=path)}

    return log_in


@pytest.fixture
async def logging_in(vault, log_in):
    """Log in whenever it is needed."""

    async def run():
        while True:
            await vault.wait_until_needed()
            await vault.populate(log_in())

    task = asyncio.create_task(run(), name='logging-in')
    yield task
    task.cancel()
    await asyncio.wait([task])


async def test_rejected_credentials_of_the_same_files_are_not_taken_again(vault, log_in):
    await vault.populate(log_in())
    await vault.invalidate(*await vault.select())

    with pytest.raises(credentials.LoginError, match='were rejected'):
        await vault.populate(log_in())


async def test_rejected_credentials_are_taken_again_when_their_files_are_replaced(
    vault, log_in, path
):
    await vault.populate(log_in())
    await vault.invalidate(*await vault.select())
    path.write_bytes(b'newer')

    await vault.populate(log_in())

    assert not vault.is_empty


async def test_replaced_files_are_other_credentials(vault, log_in, path):
    workshop = Workshop()
    await vault.populate(log_in())
    async with vault.extended(workshop.make) as old:
        path.write_bytes(b'newer')
        await vault.populate(log_in())

        async with vault.extended(workshop.make) as new:
            assert new.item is not old.item
            await vault.invalidate(old.key, old.info)
            assert (old.item.is_closed, new.item.is_closed) == (True, False)


async def test_same_files_are_the_same_credentials(vault, log_in):
    workshop = Workshop()
    await vault.populate(log_in())
    async with vault.extended(workshop.make) as old:
        await vault.populate(log_in())

    async with vault.extended(workshop.make) as new:
        assert new.item is old.item


@pytest.mark.usefixtures('logging_in')
async def test_absent_files_are_waited_for(vault, path, virtual_time, caplog):
    content = path.read_bytes()
    path.unlink()

    async def restore():
        await asyncio.sleep(10)
        path.write_bytes(content)

    restoring = asyncio.create_task(restore(), name='restoring')
    async with vault.extended(Workshop().make) as lease:
        assert not lease.item.is_closed

    await restoring
    assert 10 <= virtual_time.elapsed < 20
    assert (
        "Credentials of 'key' cannot be used: Cannot load: No such file or directory"
        in caplog.messages
    )


async def test_absent_files_are_not_waited_for_ever(vault, path, logging_in, virtual_time):
    path.unlink()

    with pytest.raises(credentials.LoginError, match=r'rejected 8 times .* No such file'):
        async with vault.extended(Workshop().make):
            pass

    assert virtual_time.elapsed == sum(vaults.DELAYS)
    with pytest.raises(credentials.LoginError):
        await logging_in
