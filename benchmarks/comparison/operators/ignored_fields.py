"""Fields that the diff-base storage leaves out, and fields that it includes only on request."""

from recording import record

import kopf


@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        ignored_fields=['spec.ignored']
    )


def declare(reason, field):
    @getattr(kopf.on, reason)('kopfexamples', id=f'{reason}-{field}', field=field)
    def fn(**kwargs):
        record(f'{reason} of {field}', **kwargs)


for reason in ['create', 'update', 'resume', 'delete']:
    for field in ['spec.ignored', 'spec.x', 'status.s', 'metadata.labels', 'metadata.annotations']:
        declare(reason, field)
