"""
The credentials of operators: with no rights, with rights that come later, with tokens that are
replaced and revoked.
"""

import logging

import e2e_servers
import pytest
from e2e_worlds import wait_until

import kopf


@pytest.fixture
async def write_token(server, world, account, tmp_path):
    """Put a new token of the service account into the kubeconfig of the operator."""

    async def write_token(name):
        token = await world.issue_token(account, name)
        e2e_servers.write_kubeconfig(tmp_path / 'kubeconfig', server.kubeconfig, token=token)
        return token

    return write_token


@pytest.fixture
async def token(write_token):
    return await write_token('first')


@pytest.fixture
def kubeconfig(token, tmp_path, monkeypatch):
    """The operator is nobody but its service account."""
    monkeypatch.setenv('KUBECONFIG', str(tmp_path / 'kubeconfig'))
    return tmp_path / 'kubeconfig'


@pytest.fixture
def calls(registry):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(reason, name, **_):
        calls.append((reason, name))

    return calls


async def test_operator_without_rights_says_so_and_goes_on_when_they_come(
    world, account, run_operator, calls, caplog
):
    caplog.set_level(logging.WARNING)
    await world.create('before')

    async with run_operator() as operator:
        await wait_until(
            lambda: [record for record in caplog.records if 'kopfexamples' in record.getMessage()]
        )
        refusals = [
            record.getMessage()
            for record in caplog.records
            if 'kopfexamples' in record.getMessage()
        ]
        assert not operator.done()
        await world.grant(account)
        await world.create('after')
        await world.wait_until_handled(name='before')
        await world.wait_until_handled(name='after')

    assert sorted(calls) == [('create', 'after'), ('create', 'before')]
    assert all(f'system:serviceaccount:{world.namespace}:{account}' in text for text in refusals)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.guarantee('AUT-028', 'AUT-029')
async def test_tokens_are_replaced_under_the_operator_and_nothing_is_lost(
    world, account, settings, run_operator, token, write_token, calls
):
    settings.watching.server_timeout = 2  # the open streams live for as long as they live
    logins = []

    def log_in(**kwargs):
        logins.append(kopf.login_with_kubeconfig(**kwargs))
        return logins[-1]

    await world.grant(account)
    async with run_operator(log_in):
        await world.create('before')
        await world.wait_until_handled(name='before')

        renewed = await write_token('second')
        await world.delete('first', 'secrets')
        await world.wait_until_rejected(token)
        await world.patch({'spec': {'x': 2}}, 'before')
        await world.create('after')

        await world.wait_until_handled(x=2, name='before')
        await world.wait_until_handled(name='after')

    assert sorted(calls) == [('create', 'after'), ('create', 'before'), ('update', 'before')]
    assert [info.token for info in logins] == [token, renewed]
