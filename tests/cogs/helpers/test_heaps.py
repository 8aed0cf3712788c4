"""
The memory is returned to the system where it is possible, and nothing fails where it is not.
"""

import ctypes

import pytest

from kopf._cogs.helpers import heaps


@pytest.fixture(autouse=True)
def forgotten_library():
    heaps._find_trimmer.cache_clear()
    yield
    heaps._find_trimmer.cache_clear()


@pytest.mark.guarantee('FND-053')
@pytest.mark.parametrize(
    'library', [pytest.param(ctypes.CDLL, id='own'), pytest.param(lambda _: object(), id='other')]
)
def test_memory_is_trimmed_if_it_is_possible(monkeypatch, library):
    monkeypatch.setattr(ctypes, 'CDLL', library)

    heaps.trim()
