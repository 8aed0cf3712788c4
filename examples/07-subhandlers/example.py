import functools

import kopf


@kopf.on.create('kopfexamples')
def create_fn(spec, **_):
    for item in spec.get('items', []):
        kopf.register(functools.partial(prepare_item, item=item), id=item)

    @kopf.subhandler()
    def summary(spec, **_):
        print(f'ALL of {len(spec.get("items", []))} items are known.')


def prepare_item(item, retry, **_):
    if retry < 1:
        raise kopf.TemporaryError(f'{item} needs a while.', delay=1)
    print(f'READY {item}')
    return {'ready': True}
