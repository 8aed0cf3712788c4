"""
The probes and metrics of running operators, as they are seen by HTTP.
"""

import asyncio
import socket

import aiohttp
from prometheus_client import parser


def find_free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


class Site:
    """The endpoint of one operator, known before the operator is run."""

    def __init__(self, session):
        self._session = session
        self.origin = f'http://127.0.0.1:{find_free_port()}'
        self.url = f'{self.origin}/healthz'

    async def fetch(self, path='/healthz'):
        """Get the code and the text of a page; raise if there is nobody to answer."""
        async with self._session.get(f'{self.origin}{path}') as response:
            return response.status, await response.text()

    async def is_served(self):
        try:
            await self.fetch()
        except aiohttp.ClientConnectorError:
            return False
        return True

    async def wait_until(self, path, code, timeout=600.0, period=0.1):
        """Wait until the page is answered so, and return its text."""
        async with asyncio.timeout(timeout):
            while True:
                if await self.is_served():
                    answer = await self.fetch(path)
                    if answer[0] == code:
                        return answer[1]
                await asyncio.sleep(period)

    async def scrape(self):
        """Get all samples, by their names and labels."""
        code, text = await self.fetch('/metrics')
        assert code == 200
        return Samples(
            sample
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        )

    async def wait_for(self, check, timeout=600.0):
        """Wait until the samples satisfy the condition, and return them."""
        async with asyncio.timeout(timeout):
            while not check(samples := await self.scrape()):
                await asyncio.sleep(0.1)
            return samples


class Samples:
    def __init__(self, samples):
        self.all = list(samples)

    def get(self, name, **labels):
        """The sum of all samples with the name and, at least, these labels."""
        return sum(
            sample.value
            for sample in self.all
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def get_labels(self, name):
        return [sample.labels for sample in self.all if sample.name == name]
