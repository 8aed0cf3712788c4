import kopf


@kopf.on.event('kopfexamples')
def see_everything(type, name, **_):
    print(f'EVENT {type or "EXISTING"} {name}')


@kopf.on.event('kopfexamples', labels={'fragile': kopf.PRESENT})
def fail(name, **_):
    raise RuntimeError(f'{name} is fragile, but that is no concern of the operator.')
