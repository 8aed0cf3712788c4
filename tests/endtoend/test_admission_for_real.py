"""
Admission on API servers that really call the webhooks, by our own servers and certificates.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import re
import socket

import aiohttp
import pytest
from e2e_worlds import PATIENCE, PAUSE

import kopf
from kopf._cogs.helpers import certificates
from kopf._core.engines.admission import registration

CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/{}'


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the API server has answered, with the warnings of admission."""

    code: int
    body: dict
    warnings: list


class Requester:
    """Makes requests that are reviewed."""

    def __init__(self, world):
        self._world = world

    async def create(self, name='obj', *, labels=None, params=None, **spec):
        body = {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'metadata': {'name': name, 'labels': labels or {}},
            'spec': spec,
        }
        return await self._ask('POST', self._world.path(), body, 'application/json', params)

    async def patch(self, name='obj', *, subresource='', params=None, **fields):
        path = self._world.path('kopfexamples', name, subresource)
        return await self._ask('PATCH', path, fields, 'application/merge-patch+json', params)

    async def delete(self, name='obj'):
        return await self._ask(
            'DELETE', self._world.path('kopfexamples', name), None, 'application/json', None
        )

    async def _ask(self, method, path, payload, media_type, params):
        async with self._world.api.session.request(
            method, path, json=payload, params=params, headers={'Content-Type': media_type}
        ) as response:
            texts = [
                re.fullmatch(r'299 - "(.*)"', text)[1]
                for text in response.headers.getall('Warning', [])
            ]
            return Answer(response.status, await response.json(), texts)


@pytest.fixture
def requester(own_server, world):
    return Requester(world)


@pytest.fixture
def managed(settings, world):
    """The name of the configurations of the test."""
    settings.admission.managed = f'{world.namespace}.kopf.dev'
    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1', host='localhost')
    return settings.admission.managed


@pytest.fixture
async def run(world, managed, registry, run_operator):
    """
    Run an operator until its webhooks are in force: ``async with run() as task``.

    API servers see new configurations a moment later than those are written.
    """

    @contextlib.asynccontextmanager
    async def run():
        probe = Probe(registry)
        async with run_operator() as task:
            await probe.wait_until_asked(world)
            yield task

    yield run
    for type in ('validating', 'mutating'):
        with contextlib.suppress(Exception):
            await world.api.ask('DELETE', CONFIGURATIONS.format(type, managed))


class Probe:
    """
    The last handlers in the configurations: when they are asked, all the others are in force, too.
    """

    def __init__(self, registry):
        self.asked = set()
        labels = {'probe': kopf.PRESENT}
        kopf.on.validate(
            'kopfexamples',
            id='probe1',
            labels=labels,
            ignore_failures=True,
            side_effects=True,
            registry=registry,
        )(self._note_validation)
        kopf.on.mutate(
            'kopfexamples',
            id='probe2',
            labels=labels,
            ignore_failures=True,
            side_effects=True,
            registry=registry,
        )(self._note_mutation)

    def _note_validation(self, **_):
        self.asked.add('validating')

    def _note_mutation(self, **_):
        self.asked.add('mutating')

    async def wait_until_asked(self, world):
        requester = Requester(world)
        async with asyncio.timeout(PATIENCE):
            while self.asked != {'validating', 'mutating'}:
                await requester.create('probe', labels={'probe': 'yes'}, params={'dryRun': 'All'})
                await asyncio.sleep(PAUSE)


@pytest.mark.guarantee('ADM-027', 'ADM-035', 'ADM-036', 'ADM-039', 'ADM-068')
async def test_objects_are_allowed_or_denied(run, registry, requester, world, managed):
    @kopf.on.validate('kopfexamples', id='check_x', registry=registry)
    def check_x(spec, **_):
        if spec.get('x') == 'bad':
            raise kopf.AdmissionError('Bad!', code=418)
        if spec.get('x') == 'broken':
            raise kopf.PermanentError('Broken!')

    async with run():
        denied = await requester.create(x='bad')
        broken = await requester.create(x='broken')
        allowed = await requester.create(x='good')
        spoiled = await requester.patch(spec={'x': 'bad'})

    prefix = f'admission webhook "check-x.{managed}" denied the request: '
    assert (denied.code, denied.body['message']) == (418, f'{prefix}Bad!')
    assert (broken.code, broken.body['message']) == (500, f'{prefix}Broken!')
    assert (allowed.code, spoiled.code) == (201, 418)
    assert (await world.find())['spec'] == {'x': 'good'}


@pytest.mark.guarantee('ADM-028', 'ADM-029', 'ADM-030')
async def test_objects_are_changed_before_they_are_stored(run, registry, requester, world):
    @kopf.on.mutate('kopfexamples', registry=registry)
    async def fill_in(spec, patch, **_):
        patch.spec['numbers'] = [1, 2, 3]
        patch.spec['unwanted'] = None
        patch.metadata.annotations['example.com/by-us'] = 'yes'

    async with run():
        answer = await requester.create(unwanted=1, wanted=2)

    assert answer.code == 201
    stored = await world.find()
    assert stored['spec'] == {'numbers': [1, 2, 3], 'wanted': 2}
    assert stored['metadata']['annotations']['example.com/by-us'] == 'yes'


@pytest.mark.guarantee('ADM-032', 'ADM-008', 'ADM-011')
async def test_warnings_are_shown_and_users_are_known(run, registry, requester):
    users = []

    @kopf.on.validate('kopfexamples', registry=registry)
    def warn(warnings, userinfo, operation, **_):
        warnings.append(f'Careful with {operation}!')
        users.append(userinfo)

    async with run():
        users.clear()
        created = await requester.create()
        deleted = await requester.delete()

    assert (created.warnings, deleted.warnings) == (
        ['Careful with CREATE!'],
        ['Careful with DELETE!'],
    )
    assert [{*user} >= {'username', 'groups'} for user in users] == [True, True]


@pytest.mark.guarantee('ADM-009', 'ADM-015')
async def test_dry_runs_are_known(run, registry, requester, world):
    runs = []

    @kopf.on.validate(
        'kopfexamples', labels={'probe': kopf.ABSENT}, side_effects=True, registry=registry
    )
    def note(dryrun, **_):
        runs.append(dryrun)

    async with run():
        dry = await requester.create(params={'dryRun': 'All'})
        absent = await world.find()
        real = await requester.create()

    assert (dry.code, absent, real.code) == (201, None, 201)
    assert runs == [True, False]


@pytest.mark.guarantee('ADM-012', 'ADM-014', 'ADM-019')
async def test_only_what_is_wanted_is_reviewed(run, registry, requester, world):
    calls = []

    @kopf.on.validate(
        'kopfexamples', id='status', operations=['UPDATE'], subresource='status', registry=registry
    )
    @kopf.on.validate(
        'kopfexamples',
        id='labelled',
        operations=['CREATE'],
        labels={'wanted': 'yes'},
        registry=registry,
    )
    @kopf.on.validate('kopfexamples', id='deleted', operations=['DELETE'], registry=registry)
    def note(operation, subresource, name, namespace, **_):
        if namespace == world.namespace:  # those of other tests may be still cleaned up
            calls.append((operation, subresource, name))

    async with run():
        await requester.create('one')
        await requester.create('two', labels={'wanted': 'yes'})
        await requester.patch('one', spec={'x': 2})
        await requester.patch('one', subresource='status', status={'x': 2})
        await requester.delete('two')

    assert calls == [('CREATE', None, 'two'), ('UPDATE', 'status', 'one'), ('DELETE', None, 'two')]


@pytest.mark.guarantee('FND-059')
@pytest.mark.parametrize('field', ['labels', 'annotations'])
async def test_unmarked_objects_are_reviewed_while_they_are_unmarked(
    run, registry, requester, world, field
):
    @kopf.on.validate('kopfexamples', registry=registry, **{field: {'guarded': 'yes'}})
    def refuse(spec, **_):
        if spec.get('x') == 'bad':
            raise kopf.AdmissionError('Bad!', code=418)

    async with run():
        await world.create(metadata={'name': 'obj', field: {'guarded': 'yes'}}, spec={'x': 'good'})
        evading = await requester.patch(metadata={field: {'guarded': None}}, spec={'x': 'bad'})
        unmarking = await requester.patch(metadata={field: {'guarded': None}})
        unguarded = await requester.patch(spec={'x': 'bad'})

    assert [evading.code, unmarking.code, unguarded.code] == [418, 200, 200]


@pytest.mark.guarantee('FND-057')
@pytest.mark.parametrize(
    'error, code, warnings',
    [
        pytest.param(kopf.AdmissionError('Bad!', code=10**12), 500, [], id='decision'),
        pytest.param(
            ValueError('Bad:\nvery'),
            201,
            ["Handler 'fn' failed, and is ignored: Bad: very"],
            id='failure',
        ),
    ],
)
async def test_failures_are_ignored_but_decisions_are_not(
    run, registry, requester, error, code, warnings
):
    @kopf.on.validate('kopfexamples', id='fn', ignore_failures=True, registry=registry)
    def fn(**_):
        raise error

    async with run():
        answer = await requester.create()

    assert (answer.code, answer.warnings) == (code, warnings)


@pytest.fixture
def unreachable(settings, managed):
    """Serve the webhooks elsewhere than API servers are told."""
    with socket.create_server(('127.0.0.1', 0)) as nobody:
        port = nobody.getsockname()[1]

    async def server(fn):
        async with kopf.WebhookServer(addr='127.0.0.1') as real:
            async for config in real(fn):
                yield {**config, 'url': f'https://localhost:{port}'}

    settings.admission.server = server
    return CONFIGURATIONS.format('validating', managed)


@pytest.mark.guarantee('ADM-016', 'ADM-095')
@pytest.mark.parametrize('ignores', [False, True], ids=['closed', 'open'])
async def test_unreachable_webhooks_block_or_not(
    registry, run_operator, requester, world, unreachable, ignores
):
    @kopf.on.validate('kopfexamples', ignore_failures=ignores, registry=registry)
    def check(**_):
        pass

    async with run_operator():
        async with asyncio.timeout(PATIENCE):
            while not await world.api.find(unreachable):
                await asyncio.sleep(PAUSE)
            while not ignores and (await requester.create(params={'dryRun': 'All'})).code == 201:
                await asyncio.sleep(PAUSE)  # it is written, but not noticed yet
        answer = await requester.create('during')
    after = await requester.create('after')
    await world.api.ask('DELETE', unreachable)

    assert answer.code == (201 if ignores else 500)
    assert ignores or 'failed calling webhook' in answer.body['message']
    assert after.code == 201


@pytest.mark.guarantee('ADM-045')
async def test_nothing_is_reviewed_after_the_operator_is_stopped(run, registry, requester):
    @kopf.on.validate('kopfexamples', labels={'probe': kopf.ABSENT}, registry=registry)
    def refuse(**_):
        raise kopf.AdmissionError('Never!', code=403)

    async with run():
        before = await requester.create()
    async with asyncio.timeout(PATIENCE):
        while (await requester.create(params={'dryRun': 'All'})).code != 201:
            await asyncio.sleep(PAUSE)

    assert before.code == 403


@pytest.fixture
def hurried_inspections(monkeypatch):
    monkeypatch.setattr(registration, 'INSPECTION_PERIOD', 0.5)


@pytest.mark.guarantee('FND-058')
@pytest.mark.usefixtures('hurried_inspections')
async def test_configurations_changed_by_others_are_put_right(
    run, registry, managed, world, caplog
):
    path = CONFIGURATIONS.format('validating', managed)
    weakened = {
        'webhooks': [
            {
                'name': f'probe1.{managed}',
                'sideEffects': 'None',
                'admissionReviewVersions': ['v1'],
                'clientConfig': {'url': 'https://elsewhere/'},
            }
        ]
    }

    async def wait_until_repaired():
        async with asyncio.timeout(PATIENCE):
            while (await world.api.find(path) or {}).get('webhooks') != before['webhooks']:
                await asyncio.sleep(PAUSE)

    async with run():
        before = await world.api.find(path)
        await asyncio.sleep(2)
        unchanged = await world.api.find(path)
        for patch in ({'webhooks': []}, weakened, {'webhooks': None}):
            await world.api.ask('PATCH', path, patch, 'application/merge-patch+json')
            await wait_until_repaired()
        await world.api.ask('DELETE', path)
        await wait_until_repaired()
    after = await world.api.find(path)

    assert unchanged['metadata']['resourceVersion'] == before['metadata']['resourceVersion']
    reports = [text for text in caplog.messages if f'{managed!r} was changed by others' in text]
    assert len(reports) == 3  # the same change is not reported again so soon
    assert f"'probe1.{managed}' is absent" in reports[0]
    assert (
        f"'probe1.{managed}' differs in admissionReviewVersions, failurePolicy, objectSelector, rules, "
        f'sideEffects, timeoutSeconds, clientConfig.caBundle, clientConfig.url' in reports[1]
    )
    assert 'it is deleted' in reports[2]
    assert not after.get('webhooks')


class Files:
    """The certificate of a webhook server, and its authority, replaced together by new ones."""

    def __init__(self, folder):
        self.options = {
            'certfile': folder / 'cert.pem',
            'pkeyfile': folder / 'key.pem',
            'cafile': folder / 'ca.pem',
        }

    def renew(self):
        now = datetime.datetime.now(datetime.UTC)
        ca = certificates.issue(certificates.Profile('test-ca', is_authority=True), now)
        profile = certificates.Profile(
            'localhost', hosts=['localhost'], purpose=certificates.Purpose.SERVER
        )
        pair = certificates.issue(profile, now, ca).export()
        self.options['cafile'].write_bytes(ca.pem)
        self.options['certfile'].write_bytes(pair.certificate)
        self.options['pkeyfile'].write_bytes(pair.key)
        return ca.pem


@pytest.mark.guarantee('NEW-228', 'ADM-049', 'ADM-070', 'ADM-071')
async def test_no_request_fails_while_the_certificate_is_replaced(
    run, registry, settings, requester, world, managed, tmp_path
):
    files = Files(tmp_path)
    files.renew()
    settings.admission.server = kopf.WebhookServer(
        addr='127.0.0.1', host='localhost', file_check_interval=2.0, **files.options
    )
    calls = []

    @kopf.on.validate('kopfexamples', operations=['UPDATE'], registry=registry)
    def note(**_):
        calls.append(...)

    async def bother():
        while not is_over.is_set():
            answers.append(await requester.patch(spec={'x': len(answers)}))

    async def get_bundle():
        configuration = await world.api.find(CONFIGURATIONS.format('validating', managed))
        return {record['clientConfig']['caBundle'] for record in configuration['webhooks']}

    is_over, answers = asyncio.Event(), []
    async with run():
        await requester.create()
        first = await get_bundle()
        bothering = asyncio.create_task(bother())
        files.renew()
        bundles = [first]
        async with asyncio.timeout(PATIENCE):
            while len(bundles) < 3 and not bothering.done():
                bundle = await get_bundle()
                if bundle != bundles[-1]:
                    bundles.append(bundle)
                await asyncio.sleep(PAUSE)
        count = len(answers)
        while len(answers) < count + 10 and not bothering.done():
            await asyncio.sleep(PAUSE)
        is_over.set()
        await bothering

    assert {(answer.code, answer.body.get('message')) for answer in answers} == {(200, None)}
    assert len(calls) >= len(answers) > 10
    assert [len(bundle) for bundle in bundles] == [1, 1, 1]


async def test_bad_requests_do_not_harm_the_reviews(run, registry, settings, requester, managed):
    configs = []

    class Server(kopf.WebhookServer):
        async def __call__(self, fn):
            async for config in super().__call__(fn):
                configs.append(config)
                yield config

    settings.admission.server = Server(addr='127.0.0.1', host='localhost')

    @kopf.on.validate('kopfexamples', id='check', registry=registry)
    def check(**_):
        pass

    async with run(), aiohttp.ClientSession() as session:
        codes = []
        for path, content in [
            ('/check', b'garbage'),
            ('/check', b'{}'),
            ('/unknown', b'{}'),
            ('', b'[]'),
        ]:
            async with session.post(
                f'{configs[0]["url"]}{path}', data=content, ssl=False
            ) as response:
                codes.append(response.status)
        answer = await requester.create()

    assert all(400 <= code < 500 for code in codes)
    assert answer.code == 201
