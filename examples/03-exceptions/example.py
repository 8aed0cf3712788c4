import kopf


class NotReadyError(Exception):
    pass


@kopf.on.create('kopfexamples')
def succeeds_at_last(retry, **_):
    if retry < 2:
        raise kopf.TemporaryError('Not yet.', delay=1)


@kopf.on.create('kopfexamples', backoff=1)
def recovers_from_anything(retry, **_):
    if retry < 1:
        raise NotReadyError('Something is not ready.')


@kopf.on.create('kopfexamples')
def knows_that_it_is_hopeless(**_):
    raise kopf.PermanentError('There is no way to do this.')


@kopf.on.create('kopfexamples', retries=3, backoff=0.5)
def gives_up_after_a_few_attempts(**_):
    raise NotReadyError('Never ready.')


@kopf.on.create('kopfexamples', errors=kopf.ErrorsMode.PERMANENT)
def treats_all_errors_as_final(**_):
    raise NotReadyError('Never tried again.')


@kopf.on.create('kopfexamples', errors=kopf.ErrorsMode.IGNORED)
def does_not_care_of_errors(**_):
    raise NotReadyError('As good as done.')
