import kopf


@kopf.on.reconcile(
    'kopfexamples',
    owns=['configmaps'],
    watches={'secrets': kopf.ref('spec.secret')},
    resync=3600,
)
def reconcile(name, spec, owned: kopf.Owned, related: kopf.Related, patch, triggers, **_):
    secret = spec.get('secret')
    is_ready = secret is None or related.get('secrets', secret) is not None
    children = sorted(body.metadata.name for body in owned['configmaps'])
    print(f'RECONCILED {name} for {", ".join(sorted(triggers))}: children {children}')
    patch.status['children'] = children
    patch.status['phase'] = 'Ready' if is_ready else f'waiting for the secret {secret}'
