import kopf


def is_short(value, **_):
    return value is not None and len(value) < 10


def is_default(namespace, **_):
    return namespace == 'default'


@kopf.on.create('kopfexamples', labels={'somelabel': 'somevalue'})
def with_label_value(**_):
    print('MATCHED by the value of the label')


@kopf.on.create('kopfexamples', labels={'somelabel': 'othervalue'})
def with_other_label_value(**_):
    print('MISMATCHED by the value of the label')


@kopf.on.create('kopfexamples', labels={'somelabel': kopf.PRESENT, 'nolabel': kopf.ABSENT})
def with_label_presence(**_):
    print('MATCHED by the presence and absence of labels')


@kopf.on.create('kopfexamples', labels={'somelabel': kopf.ABSENT})
def with_label_absence(**_):
    print('MISMATCHED by the absence of the label')


@kopf.on.create('kopfexamples', annotations={'someannotation': is_short})
def with_annotation_callback(**_):
    print('MATCHED by the function for the annotation')


@kopf.on.create('kopfexamples', field='spec.field', value='value')
def with_field_value(**_):
    print('MATCHED by the value of the field')


@kopf.on.create('kopfexamples', field='spec.field', value=kopf.ABSENT)
def with_field_absence(**_):
    print('MISMATCHED by the absence of the field')


@kopf.on.create('kopfexamples', when=kopf.all_([is_default, lambda spec, **_: 'duration' in spec]))
def with_functions(**_):
    print('MATCHED by the functions')


@kopf.on.create('kopfexamples', when=kopf.not_(is_default))
def with_negated_function(**_):
    print('MISMATCHED by the negated function')
