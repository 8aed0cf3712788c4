import kopf


@kopf.on.resume('kopfexamples')
def resume_fn(name, **_):
    print(f'RESUMED {name}: it was here before the operator.')


@kopf.on.create('kopfexamples')
def create_fn_1(name, **_):
    print(f'CREATED 1st {name}')


@kopf.on.create('kopfexamples')
def create_fn_2(name, **_):
    print(f'CREATED 2nd {name}')


@kopf.on.update('kopfexamples')
def update_fn(name, diff, **_):
    for operation, path, old, new in diff:
        print(f'UPDATED {name}: {operation} {".".join(path)} from {old!r} to {new!r}')


@kopf.on.field('kopfexamples', field='spec.field')
def field_fn(name, old, new, **_):
    print(f'FIELD of {name}: {old!r} -> {new!r}')


@kopf.on.delete('kopfexamples')
async def delete_fn_1(name, **_):
    print(f'DELETED 1st {name}')


@kopf.on.delete('kopfexamples', optional=True)
async def delete_fn_2(name, **_):
    print(f'DELETED 2nd {name}')
