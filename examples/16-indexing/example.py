import kopf


@kopf.index('v1', 'pods', labels={'app': kopf.PRESENT})
def pods_by_app(namespace, name, labels, **_):
    return {(namespace, labels['app']): name}


@kopf.on.event('v1', 'pods', labels={'app': kopf.PRESENT})
def pod_event(namespace, labels, pods_by_app: kopf.Index, **_):
    names = pods_by_app.get((namespace, labels['app']), [])
    print(f'PODS of {labels["app"]}: {", ".join(sorted(names)) or "none"}')


@kopf.timer('kopfexamples', interval=0.5)
def look_around(namespace, name, pods_by_app: kopf.Index, patch, **_):
    count = len(pods_by_app.get((namespace, name), []))
    patch.status['pods'] = count
    print(f'COUNT of {name}: {count} pods')


@kopf.on.probe()
def apps(pods_by_app: kopf.Index, **_):
    return sorted({app for _, app in pods_by_app})
