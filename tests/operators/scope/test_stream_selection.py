"""
What operators ask the cluster for: only the resources that they need, and all objects of these.
"""

import urllib.parse

import pytest
from clusters import build_crd, build_object, wait_until

import kopf


@pytest.fixture
async def crowd(sandbox, cluster):
    """Many resources in the group, with an object of each."""
    for kind in ['KopfOne', 'KopfTwo', 'KopfThree']:
        await sandbox.apply(build_crd(f'{kind.lower()}s', kind))
        await sandbox.create(build_object(kind=kind))
    return cluster


def get_asked(sandbox):
    """The objects that were asked for by anyone but the observers: ``(verb, plural, query)``."""
    return [
        (asked.verb, asked.plural, asked.query)
        for asked in sandbox.requests
        if asked.verb in ('list', 'watch')
        and asked.user_agent.startswith('kopf/')
        and asked.plural not in ('customresourcedefinitions', 'namespaces', 'clusterkopfpeerings')
    ]


@pytest.mark.guarantee('NEW-023')
async def test_resources_that_a_callable_rejects_are_never_asked_for(
    sandbox, crowd, registry, run_operator, calls
):
    def is_wanted(resource):
        return resource.plural in ('kopfones', 'kopflates')

    @kopf.on.event(is_wanted, registry=registry)
    async def event_fn(resource, **_):
        calls.append(resource.plural)

    await run_operator()
    await sandbox.apply(build_crd('kopfevens', 'KopfEven'), build_crd('kopflates', 'KopfLate'))
    await sandbox.create(build_object(kind='KopfEven'))
    await sandbox.create(build_object(kind='KopfLate'))
    await wait_until(lambda: set(calls) == {'kopfones', 'kopflates'})

    asked = {(verb, plural) for verb, plural, _ in get_asked(sandbox)}
    assert asked == {
        (verb, plural) for verb in ('list', 'watch') for plural in ('kopfones', 'kopflates')
    }


@pytest.mark.guarantee('NEW-141')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'labels': {'mark': 'yes'}}, id='labels'),
        pytest.param({'annotations': {'mark': 'yes'}}, id='annotations'),
        pytest.param({'field': 'spec.mark'}, id='field'),
        pytest.param({'field': 'spec.mark', 'value': 'yes'}, id='value'),
        pytest.param({'when': lambda spec, **_: 'mark' in spec}, id='when'),
    ],
)
async def test_filters_of_handlers_are_not_told_to_the_cluster(
    sandbox, cluster, registry, run_operator, calls, settings, options
):
    @kopf.on.event('kopfexamples', **options, registry=registry)
    async def event_fn(name, **_):
        calls.append(name)

    settings.watching.label_selectors['kopfexamples'] = 'team=mine'
    await run_operator()
    await cluster.create('unmarked', labels={'team': 'mine'})
    await cluster.create(
        'foreign', labels={'mark': 'yes'}, annotations={'mark': 'yes'}, spec={'mark': 'yes'}
    )
    await cluster.create(
        'marked',
        labels={'mark': 'yes', 'team': 'mine'},
        annotations={'mark': 'yes'},
        spec={'mark': 'yes'},
    )
    await wait_until(lambda: calls)

    assert calls == ['marked']
    selections = [
        {
            key: values
            for key, values in urllib.parse.parse_qs(query).items()
            if key.endswith('Selector')
        }
        for _, _, query in get_asked(sandbox)
    ]
    assert selections and all(
        selection == {'labelSelector': ['team=mine']} for selection in selections
    )
