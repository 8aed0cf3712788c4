import asyncio

import kopf


@kopf.daemon('kopfexamples')
async def polite_daemon(name, spec, stopped, **_):
    while not await stopped.wait(0.5):
        print(f'BEAT of the coroutine of {name}: the field is {spec.get("field")!r}.')
    print(f'STOPPED the coroutine of {name}')


@kopf.daemon('kopfexamples', initial_delay=0.5)
def daemon_in_a_thread(name, retry, stopped, **_):
    if retry < 1:
        raise kopf.TemporaryError('The first attempt fails: daemons are retried too.', delay=0.5)
    while not stopped:
        print(f'BEAT of the thread of {name}')
        stopped.wait(0.5)
    print(f'STOPPED the thread of {name}')


@kopf.daemon('kopfexamples', annotations={'someannotation': 'somevalue'}, cancellation_timeout=0.5)
async def careless_daemon(name, **_):
    try:
        print(f'STARTED the careless one of {name}')
        await asyncio.Event().wait()
    finally:
        print(f'CANCELLED the careless one of {name}')
