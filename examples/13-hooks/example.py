import asyncio

import kopf


@kopf.on.startup()
async def start(settings, memo, logger, **_):
    settings.posting.enabled = False
    memo.stopping = asyncio.Event()
    memo.tasks = {}
    logger.info('Starting.')


@kopf.on.cleanup()
async def stop(memo, logger, **_):
    logger.info(f'Stopping {len(memo.tasks)} tasks.')
    memo.stopping.set()
    if memo.tasks:
        await asyncio.wait(memo.tasks.values())


@kopf.on.event('v1', 'pods')
async def see_pod(event, memo, uid, name, **_):
    if event['type'] == 'DELETED':
        if uid in memo.tasks:
            memo.tasks.pop(uid).cancel()
    elif uid not in memo.tasks:
        memo.tasks[uid] = asyncio.create_task(watch_over(name, memo.stopping))


async def watch_over(name, stopping):
    print(f'WATCHING over {name}')
    await stopping.wait()
    await asyncio.sleep(0.1)
    print(f'LEFT {name}')
