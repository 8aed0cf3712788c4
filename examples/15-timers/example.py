import kopf


@kopf.timer('kopfexamples', interval=0.5)
def every_half_a_second(name, memo, **_):
    memo.ticks = memo.get('ticks', 0) + 1
    print(f'TICK {memo.ticks} of {name}')


@kopf.timer('kopfexamples', idle=1, interval=60)
async def when_it_is_quiet(name, spec, patch, **_):
    patch.status['seen'] = spec.get('field')
    print(f'QUIET {name}: it has stopped changing; the field is {spec.get("field")!r}.')


@kopf.timer('kopfexamples', initial_delay=0.5, interval=60, sharp=True)
async def once_in_a_minute(name, retry, **_):
    if retry < 1:
        raise kopf.TemporaryError('It is not the time yet.', delay=0.5)
    print(f'DONE for {name}')
