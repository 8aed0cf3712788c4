"""
Definitions of custom resources: their life, what they serve, and what they refuse.
"""

import copy

import fidelity_samples
from fidelity_talks import CRDS, Talk, Transcript, is_established


async def live(talk: Talk) -> None:
    crd = fidelity_samples.build_crd(talk, shortNames=['th'], categories=['all'])
    name = crd['metadata']['name']
    await talk.get(f'{CRDS}/{name}')
    await talk.get(f'/apis/{talk.group}/v1/things')
    await talk.get(f'/apis/{talk.group}/v1')
    await talk.get(f'/apis/{talk.group}')
    await talk.post(CRDS, crd)
    await talk.wait_until(f'{CRDS}/{name}', lambda _, body: is_established(body))
    await talk.wait_until_listed(talk.group, 'v1', 'things')
    stored = await talk.get(f'{CRDS}/{name}')
    await talk.post(CRDS, crd)
    await talk.get(f'/apis/{talk.group}')
    await talk.get(f'/apis/{talk.group}/v1')
    await talk.get(f'/apis/{talk.group}/v2')
    await talk.get(talk.custom('things'))
    await talk.get(f'/apis/{talk.group}/v1/things')
    await talk.post(talk.custom('things'), fidelity_samples.build_thing(talk))
    talk.note('changes')  # after them, the objects are not served for an instant
    await talk.put(
        f'{CRDS}/{name}', {**stored, 'metadata': {**stored['metadata'], 'resourceVersion': '1'}}
    )
    await talk.put(f'{CRDS}/{name}', {**crd, 'spec': {**crd['spec'], 'scope': 'Cluster'}})
    await talk.merge(f'{CRDS}/{name}', {'spec': {'names': {'shortNames': ['th', 'tg']}}})
    await talk.merge(f'{CRDS}/{name}', {'spec': {'group': 'other.kopf.dev'}})
    await talk.wait_until(
        f'{CRDS}/{name}', lambda _, body: 'tg' in body['status']['acceptedNames']['shortNames']
    )
    await talk.wait_until(talk.custom('things', 'one'), lambda code, _: code == 200)
    await talk.delete(f'{CRDS}/{name}')
    await talk.wait_until_gone(f'{CRDS}/{name}')
    await talk.get(f'{CRDS}/{name}')
    await talk.wait_until(talk.custom('things'), lambda code, _: code == 404)
    await talk.get(talk.custom('things'))
    await talk.delete(f'{CRDS}/{name}')


async def be_refused(talk: Talk) -> None:
    good = fidelity_samples.build_crd(talk)
    variants = {
        'another name': {**good, 'metadata': {'name': f'other.{talk.group}'}},
        'no metadata': {key: value for key, value in good.items() if key != 'metadata'},
        'no spec': {key: value for key, value in good.items() if key != 'spec'},
        'no versions': _change(good, versions=[]),
        'no schema': _change(good, versions=[{'name': 'v1', 'served': True, 'storage': True}]),
        'two stored': _change(
            good,
            versions=[fidelity_samples.build_version('v1'), fidelity_samples.build_version('v2')],
        ),
        'none stored': _change(good, versions=[fidelity_samples.build_version(storage=False)]),
        'bad scope': _change(good, scope='Global'),
        'no kind': _change(good, names={'plural': 'things', 'singular': 'thing'}),
        'bad plural': _change(
            good, names={'plural': 'Things', 'singular': 'thing', 'kind': 'Thing'}
        ),
        'not structural': _change(
            good,
            versions=[
                fidelity_samples.build_version(
                    schema={
                        'type': 'object',
                        'properties': {'spec': {'properties': {'size': {'type': 'integer'}}}},
                    }
                )
            ],
        ),
        'bad default': _change(
            good,
            versions=[
                fidelity_samples.build_version(
                    schema={
                        'type': 'object',
                        'properties': {'size': {'type': 'integer', 'default': 'big'}},
                    }
                )
            ],
        ),
        'bad type': _change(
            good,
            versions=[
                fidelity_samples.build_version(
                    schema={'type': 'object', 'properties': {'size': {'type': 'int'}}}
                )
            ],
        ),
        'bad version': _change(good, versions=[fidelity_samples.build_version('1v')]),
        'bad column': _change(
            good,
            versions=[
                fidelity_samples.build_version(
                    additionalPrinterColumns=[
                        {'name': 'Size', 'type': 'integer', 'jsonPath': 'spec.size'}
                    ]
                )
            ],
        ),
        'wrong kind': {**good, 'kind': 'Definition'},
    }
    for note, body in variants.items():
        talk.note(note)
        await talk.post(CRDS, body)


def _change(crd: dict, **fields: object) -> dict:
    changed = copy.deepcopy(crd)
    changed['spec'].update(fields)
    return changed


async def validate(talk: Talk) -> None:
    properties = {
        'integer': {'type': 'integer', 'minimum': 1, 'maximum': 5, 'exclusiveMaximum': True},
        'number': {'type': 'number', 'multipleOf': 0.5, 'minimum': 0, 'exclusiveMinimum': True},
        'text': {'type': 'string', 'minLength': 2, 'maxLength': 4},
        'shape': {'type': 'string', 'pattern': '^[a-c]+$'},
        'choice': {'type': 'string', 'enum': ['yes', 'no']},
        'date': {'type': 'string', 'format': 'date-time'},
        'flag': {'type': 'boolean'},
        'either': {'x-kubernetes-int-or-string': True},
        'items': {'type': 'array', 'minItems': 1, 'maxItems': 2, 'items': {'type': 'integer'}},
        'set': {'type': 'array', 'x-kubernetes-list-type': 'set', 'items': {'type': 'string'}},
        'map': {'type': 'object', 'maxProperties': 1, 'additionalProperties': {'type': 'integer'}},
        'strict': {
            'type': 'object',
            'required': ['must'],
            'properties': {'must': {'type': 'string'}},
        },
        'nullable': {'type': 'string', 'nullable': True},
        'one': {
            'type': 'object',
            'properties': {'a': {'type': 'string'}, 'b': {'type': 'string'}},
            'oneOf': [{'required': ['a']}, {'required': ['b']}],
        },
        'any': {
            'type': 'object',
            'properties': {'a': {'type': 'string'}, 'b': {'type': 'string'}},
            'anyOf': [{'required': ['a']}, {'required': ['b']}],
        },
        'not': {
            'type': 'object',
            'properties': {'a': {'type': 'string'}},
            'not': {'required': ['a']},
        },
    }
    schema = {
        'type': 'object',
        'required': ['spec'],
        'properties': {'spec': {'type': 'object', 'properties': properties}},
    }
    await talk.define(
        fidelity_samples.build_crd(talk, 'things', fidelity_samples.build_version(schema=schema))
    )
    for field, value in _list_wrong_values():
        talk.note(f'{field}: {value!r}')
        await talk.post(
            talk.custom('things'), fidelity_samples.build_thing(talk, spec={field: value})
        )
    talk.note('no spec')
    await talk.post(
        talk.custom('things'),
        {'apiVersion': f'{talk.group}/v1', 'kind': 'Thing', 'metadata': {'name': 'one'}},
    )
    talk.note('several')
    await talk.post(
        talk.custom('things'),
        fidelity_samples.build_thing(talk, spec={'integer': 9, 'choice': 'maybe', 'strict': {}}),
    )
    talk.note('good')
    await talk.post(
        talk.custom('things'),
        fidelity_samples.build_thing(
            talk,
            spec={
                'integer': 4,
                'number': 1.5,
                'text': 'abc',
                'shape': 'abc',
                'choice': 'yes',
                'flag': True,
                'either': '50%',
                'date': '2020-01-01T00:00:00Z',
                'items': [1, 2],
                'set': ['a'],
                'map': {'a': 1},
                'strict': {'must': ''},
                'nullable': None,
                'one': {'a': ''},
                'any': {'a': ''},
                'not': {},
            },
        ),
    )
    talk.note('made wrong')
    await talk.merge(talk.custom('things', 'one'), {'spec': {'integer': 7}})
    await talk.json(talk.custom('things', 'one'), ('replace', '/spec/text', 5))


def _list_wrong_values() -> list[tuple[str, object]]:
    return [
        ('integer', 0),
        ('integer', 5),
        ('integer', 1.5),
        ('integer', '3'),
        ('integer', None),
        ('number', 0),
        ('number', 0.7),
        ('number', 'many'),
        ('text', 'a'),
        ('text', 'abcde'),
        ('text', 5),
        ('shape', 'xyz'),
        ('choice', 'maybe'),
        ('date', 'today'),
        ('flag', 'true'),
        ('either', 1.5),
        ('either', True),
        ('items', []),
        ('items', [1, 2, 3]),
        ('items', ['a']),
        ('items', {}),
        ('set', ['a', 'a']),
        ('map', {'a': 1, 'b': 2}),
        ('map', {'a': 'x'}),
        ('map', []),
        ('strict', {}),
        ('strict', {'must': None}),
        ('strict', 'x'),
        ('one', {}),
        ('one', {'a': '', 'b': ''}),
        ('any', {}),
        ('not', {'a': ''}),
    ]


async def prune(talk: Talk) -> None:
    inner = {
        'type': 'object',
        'default': {},
        'properties': {'depth': {'type': 'integer', 'default': 3}},
    }
    schema = {
        'type': 'object',
        'properties': {
            'spec': {
                'type': 'object',
                'properties': {
                    'size': {'type': 'integer', 'default': 1},
                    'inner': inner,
                    'free': fidelity_samples.ANYTHING,
                    'list': {
                        'type': 'array',
                        'items': {
                            'type': 'object',
                            'properties': {
                                'name': {'type': 'string'},
                                'port': {'type': 'integer', 'default': 80},
                            },
                        },
                    },
                    'nullable': {'type': 'string', 'nullable': True, 'default': 'x'},
                    'strict': {'type': 'string', 'default': 'x'},
                },
            }
        },
    }
    await talk.define(
        fidelity_samples.build_crd(
            talk,
            'things',
            fidelity_samples.build_version(schema=schema, subresources={'status': {}}),
        )
    )
    things = talk.custom('things')
    await talk.post(things, fidelity_samples.build_thing(talk, 'a', spec={}))
    await talk.post(
        things, {'apiVersion': f'{talk.group}/v1', 'kind': 'Thing', 'metadata': {'name': 'b'}}
    )
    await talk.post(
        things,
        fidelity_samples.build_thing(
            talk,
            'c',
            spec={
                'unknown': 1,
                'free': {'unknown': {'x': [1]}},
                'list': [{'name': 'n', 'extra': 1}],
                'inner': {'other': 2},
                'nullable': None,
                'strict': None,
            },
            status={'ignored': True},
        ),
    )
    await talk.merge(f'{things}/c', {'spec': {'unknown': 2, 'size': None}, 'more': {}})
    talk.note('strict')
    body = fidelity_samples.build_thing(talk, 'd', spec={'unknown': 1})
    await talk.post(things, body, fieldValidation='Strict')
    await talk.post(things, body, fieldValidation='Warn')
    await talk.post(
        things, {**body, 'metadata': {'name': 'e', 'color': 'red'}}, fieldValidation='Strict'
    )
    await talk.merge(f'{things}/c', {'spec': {'unknown': 2}}, fieldValidation='Strict')
    await talk.post(things, body, fieldValidation='Sometimes')


async def have_versions(talk: Talk) -> None:
    await talk.define(
        fidelity_samples.build_crd(
            talk,
            'things',
            fidelity_samples.build_version('v1'),
            fidelity_samples.build_version('v1beta1', storage=False, deprecated=True),
            fidelity_samples.build_version(
                'v2', storage=False, deprecated=True, deprecationWarning='v2 is odd'
            ),
            fidelity_samples.build_version('v3', storage=False, served=False),
        )
    )
    await talk.get(f'/apis/{talk.group}')
    await talk.post(talk.custom('things'), fidelity_samples.build_thing(talk))
    for version in ('v1', 'v1beta1', 'v2', 'v3', 'v4'):
        await talk.get(talk.custom('things', 'one', version=version))
    talk.note('status is not enabled')
    await talk.get(talk.custom('things', 'one', 'status'))
    await talk.merge(talk.custom('things', 'one'), {'status': {'x': 1}})
    await talk.merge(talk.custom('things', 'one', version='v1beta1'), {'spec': {'size': 2}})
    await talk.post(talk.custom('things', version='v2'), fidelity_samples.build_thing(talk, 'two'))


async def scale(talk: Talk) -> None:
    await talk.define(
        fidelity_samples.build_crd(
            talk,
            'things',
            fidelity_samples.build_version(
                subresources={'status': {}, 'scale': fidelity_samples.SCALE}
            ),
        )
    )
    await talk.post(talk.custom('things'), fidelity_samples.build_thing(talk))
    path = talk.custom('things', 'one', 'scale')
    await talk.get(path)
    await talk.merge(path, {'spec': {'replicas': 3}})
    found = await talk.get(path)
    await talk.put(path, {**found, 'spec': {'replicas': 5}})
    await talk.put(path, {**found, 'spec': {'replicas': 6}})
    await talk.merge(path, {'spec': {'replicas': -1}})
    await talk.get(talk.custom('things', 'one'))
    await talk.merge(talk.custom('things', 'one', 'status'), {'status': {'replicas': 4}})
    await talk.get(path)
    await talk.get(talk.custom('things', 'two', 'scale'))


async def be_clustered(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk, scope='Cluster'))
    things = f'/apis/{talk.group}/v1/things'
    await talk.post(things, fidelity_samples.build_thing(talk))
    await talk.post(things, fidelity_samples.build_thing(talk, 'two', namespace='default'))
    await talk.get(things)
    await talk.get(talk.custom('things'))
    await talk.delete(f'{things}/one')
    await talk.get(f'{things}/one')


async def have_patterns(talk: Talk) -> None:
    patterns = (
        '^a$',
        '(',
        'a)',
        '[a',
        '[z-a]',
        '*',
        'a**',
        'a{1001}',
        'a{2,1}',
        '(a{1000}){2}',
        'a{,1}',
        '[[:foo:]]',
        r'\p{Foo}',
        r'\p{Greek}',
        r'\1',
        r'\C',
        r'\Z',
        'a\\',
        '(?=a)',
        '(?<!a)b',
        '(?<=a>)b',
        '(?<n>a)',
        '(?P<n',
        '(?P=n)',
        '(?>a)',
        '(?i',
        '(?i-s:a)',
        '(?x)a',
        r'\Qab',
        r'[\d-z]',
        r'[a-\w]',
        r'\x{110000}',
        'a++',
        '(?#x)',
        '()*',
        '^*',
    )
    for pattern in patterns:
        talk.note(pattern)
        schema = {'type': 'object', 'properties': {'text': {'type': 'string', 'pattern': pattern}}}
        crd = fidelity_samples.build_crd(
            talk, 'patterns', fidelity_samples.build_version(schema=schema)
        )
        await talk.post(CRDS, crd, dryRun='All')


TRANSCRIPTS = (
    Transcript('crd-life', live),
    Transcript('crd-refusals', be_refused),
    Transcript('crd-validation', validate),
    Transcript('crd-pruning', prune),
    Transcript('crd-versions', have_versions),
    Transcript('crd-scale', scale),
    Transcript('crd-clustered', be_clustered),
    Transcript('crd-patterns', have_patterns),
)
