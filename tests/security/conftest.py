"""
Operators under attack, in processes of their own, and enough files for the attackers.
"""

import resource

import pytest
from attacked_operators import running_operator

FILES = 8192


@pytest.fixture(scope='session', autouse=True)
def many_files():
    """Let this process have thousands of connections, if the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope='module')
def victim(tmp_path_factory):
    """An operator with HTTPS webhooks."""
    with running_operator(tmp_path_factory.mktemp('victim')) as victim:
        yield victim


@pytest.fixture(scope='module')
def plain_victim(tmp_path_factory):
    """An operator with webhooks of plain HTTP, as it is behind tunnels."""
    with running_operator(tmp_path_factory.mktemp('plain-victim'), insecure=True) as victim:
        yield victim


@pytest.fixture(params=['https', 'http'])
def any_victim(request):
    return request.getfixturevalue('victim' if request.param == 'https' else 'plain_victim')
