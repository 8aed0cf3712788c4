"""
The same as ``handlers.py``, but only with the client code: without an operator around it.
"""

import asyncio
import collections
import contextlib
import importlib.util
import logging

import telling

from kopf._cogs.clients import limits, requests
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.configs import settings
from kopf._cogs.structs import references, vaults
from kopf._core.intents import piggybacking

LOADS = references.Resource('bench.dev', 'v1', 'loads', kind='Load', namespaced=True)


async def count() -> None:
    vault = vaults.Vault({'kubeconfig': piggybacking.login_with_kubeconfig()})
    context = requests.Context(
        vault, settings.OperatorSettings(), logging.getLogger(), limits.get_common_gates()
    )
    counts: collections.Counter[int] = collections.Counter()
    stream = event_streams.stream_events(
        LOADS, 'default', context=context, state=stream_states.StreamState()
    )
    async with contextlib.aclosing(stream):
        async for item in stream:
            if item is stream_states.Marker.LISTED:
                continue
            generation = item['object']['spec']['replicas']
            counts[generation] += 1
            if counts[generation] == telling.TOTAL:
                telling.tell({'generation': generation})


def main() -> None:
    if importlib.util.find_spec('uvloop'):
        import uvloop

        uvloop.run(count())
    else:
        asyncio.run(count())


if __name__ == '__main__':
    main()
