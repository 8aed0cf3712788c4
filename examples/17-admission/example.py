import re

import kopf


@kopf.on.startup()
def configure(settings, **_):
    settings.admission.managed = 'auto.kopf.dev'
    settings.admission.server = kopf.WebhookAutoServer()


@kopf.on.mutate('kopfexamples', operations=['CREATE', 'UPDATE'])
def fill_in(spec, patch, **_):
    if 'priority' not in spec:
        patch.spec['priority'] = 'normal'


@kopf.on.validate('kopfexamples', operations=['CREATE', 'UPDATE'])
def check_duration(spec, warnings, **_):
    duration = spec.get('duration', '')
    if not re.fullmatch(r'\d+[smh]', duration):
        raise kopf.AdmissionError(
            f'The duration must be like 30s, 5m, 1h, not {duration!r}.', code=400
        )
    if duration.endswith('h'):
        warnings.append('It will take hours.')


@kopf.on.validate('kopfexamples', operations=['DELETE'], annotations={'protected': kopf.PRESENT})
def protect(name, userinfo, **_):
    raise kopf.AdmissionError(f'{name} is protected, even from {userinfo["username"]}.', code=403)


@kopf.on.validate('kopfexamples', side_effects=True, ignore_failures=True)
def report(operation, name, dryrun, **_):
    if not dryrun:
        print(f'REQUESTED {operation} of {name}')
