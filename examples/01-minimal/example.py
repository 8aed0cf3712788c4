import kopf


@kopf.on.create('kopfexamples')
def create_fn(spec, name, **_):
    print(f'Hello, {name}! You are here for {spec.get("duration")}.')
    return {'greeted': True}
