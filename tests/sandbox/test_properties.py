"""
Whatever is written, deleted, selected and watched, in whatever order, the promises of the API hold.
"""

import asyncio
import json

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st

from kopf._sandbox import clusters
from kopf._sandbox.endpoints import negotiation, verbs
from kopf._sandbox.meta import errors, requests, selectors
from kopf._sandbox.registry import watcher

NAMES = st.sampled_from(['a', 'b', 'c', 'd'])
COLORS = st.sampled_from(['red', 'blue', None])
FINALIZERS = st.lists(st.sampled_from(['x/y', 'x/z']), unique=True)
SELECTORS = st.sampled_from(['', 'color=red', 'color!=red', '!color', 'color in (red,blue)'])
MERGE = 'application/merge-patch+json'


class ClusterMachine(stateful.RuleBasedStateMachine):
    """Random requests to one resource; every state of the world is remembered by its version."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.cluster = clusters.Cluster()
        self.handler = verbs.Handler(self.cluster)
        self.loop.run_until_complete(self.cluster.start())
        self.resource = self.cluster.find('v1', 'Secret')
        self.model = {}  # by name: what must be there
        self.worlds = {self.cluster.store.version: {}}  # by version: what was there
        self.writes = []  # (version, name) of all that has happened
        self.compacted = 0

    def teardown(self):
        self.loop.run_until_complete(self.cluster.close())
        self.loop.close()

    @stateful.rule(name=NAMES, color=COLORS, finalizers=FINALIZERS)
    def create(self, name, color, finalizers):
        meta = {'name': name, 'finalizers': finalizers, 'labels': {'color': color} if color else {}}
        code, body = self.ask('create', body={'metadata': meta})

        assert code == (409 if name in self.model else 201)
        if code == 201:
            self.remember(name, body, {'color': color, 'finalizers': finalizers, 'deleting': False})

    @stateful.rule(name=NAMES, color=COLORS)
    def paint(self, name, color):
        code, body = self.ask('patch', name, {'metadata': {'labels': {'color': color}}}, MERGE)

        assert code == (200 if name in self.model else 404)
        if code == 200 and self.model[name]['color'] == color:
            assert body['metadata']['resourceVersion'] == self.model[name]['version']
        elif code == 200:
            self.remember(name, body, {**self.model[name], 'color': color})

    @stateful.rule(name=NAMES, finalizers=FINALIZERS)
    def hold(self, name, finalizers):
        known = self.model.get(name)
        code, body = self.ask('patch', name, {'metadata': {'finalizers': finalizers}}, MERGE)

        if known is None:
            assert code == 404
        elif known['deleting'] and not {*finalizers} <= {*known['finalizers']}:
            assert code == 422
        elif known['deleting'] and not finalizers:
            assert code == 200
            self.remember_removal(name)
        elif finalizers != known['finalizers']:
            assert code == 200
            self.remember(name, body, {**known, 'finalizers': finalizers})

    @stateful.rule(name=NAMES)
    def delete(self, name):
        known = self.model.get(name)
        code, body = self.ask('delete', name)

        assert code == (404 if known is None else 200)
        if known is None or known['deleting']:
            return
        if known['finalizers']:
            self.remember(name, body, {**known, 'deleting': True})
        else:
            self.remember_removal(name)

    @stateful.rule(name=NAMES, stale=st.booleans())
    def replace_with_version(self, name, stale):
        if name in self.model:
            version = '1' if stale else self.model[name]['version']
            code, _ = self.ask(
                'update',
                name,
                {
                    'metadata': {
                        'name': name,
                        'resourceVersion': version,
                        'finalizers': self.model[name]['finalizers'],
                        'labels': self.labels_of(self.model[name]),
                    }
                },
            )
            assert code == (409 if stale else 200)

    @stateful.rule(data=st.data())
    def compact(self, data):
        self.compacted = max(self.compacted, data.draw(st.sampled_from(sorted(self.worlds))))
        self.cluster.store.compact(self.compacted)

    @stateful.rule(selector=SELECTORS, data=st.data())
    def watch_from_the_past(self, selector, data):
        since = data.draw(st.sampled_from(sorted(self.worlds)))
        events = self.watch(since, selector)
        if since < self.compacted:
            assert [event['object']['code'] for event in events] == [410]
            return
        replayed = {
            name: labels
            for name, labels in self.worlds[since].items()
            if self.selects(selector, labels)
        }
        for event in events:
            meta = event['object']['metadata']
            assert (meta['name'] in replayed) is (event['type'] != 'ADDED')
            if event['type'] == 'DELETED':
                del replayed[meta['name']]
            else:
                replayed[meta['name']] = meta.get('labels', {})

        assert replayed == self.list(selector)

    @stateful.rule(data=st.data())
    def watch_everything_from_the_past(self, data):
        since = data.draw(
            st.sampled_from(
                [version for version in sorted(self.worlds) if version >= self.compacted]
            )
        )
        events = self.watch(since, '')
        seen = [
            (
                int(event['object']['metadata']['resourceVersion']),
                event['object']['metadata']['name'],
            )
            for event in events
        ]

        assert seen == [write for write in self.writes if write[0] > since]

    @stateful.rule(limit=st.integers(1, 3))
    def list_by_pages(self, limit):
        names, token = [], ''
        while True:
            options = {'limit': str(limit), **({'continue': token} if token else {})}
            _, body = self.ask('list', options=options)
            names += [item['metadata']['name'] for item in body['items']]
            token = body['metadata'].get('continue')
            if not token:
                break

        assert names == sorted(self.model)

    @stateful.invariant()
    def versions_strictly_increase(self):
        versions = [version for version, _ in self.writes]
        assert versions == sorted(set(versions))

    @stateful.invariant()
    def nothing_is_lost_or_imagined(self):
        assert self.list('') == {name: self.labels_of(known) for name, known in self.model.items()}

    def ask(self, verb, name='', body=None, content_type='application/json', options=None):
        request = requests.Request(
            verb,
            self.resource,
            clusters.ADMIN,
            'default',
            name,
            options=options or {},
            field_manager='tests',
        )
        asking = verbs.Asking(b'' if body is None else json.dumps(body).encode(), content_type)
        try:
            answer = self.loop.run_until_complete(self.handler.handle(request, asking))
        except errors.ApiError as e:
            return e.code, e.status
        return answer.code, json.loads(answer.body)

    def watch(self, since, selector):
        return self.loop.run_until_complete(self.read_stream(since, selector))

    async def read_stream(self, since, selector):
        interest = selectors.parse_interest({'labelSelector': selector}, 'default', [])
        renderer = negotiation.Renderer(self.resource, negotiation.Form(), clusters.utc_now)
        form = watcher.Format(renderer.render_line, renderer.render_bookmark)
        watch = watcher.Watch(interest, since, timeout=0)
        stream = watcher.stream(self.cluster.store, self.resource.home, watch, form)
        return [json.loads(line) async for batch in stream for line in batch.splitlines()]

    def list(self, selector):
        _, body = self.ask('list', options={'labelSelector': selector})
        return {
            item['metadata']['name']: item['metadata'].get('labels', {}) for item in body['items']
        }

    def remember(self, name, body, known):
        self.model[name] = {**known, 'version': body['metadata']['resourceVersion']}
        self.remember_world(int(body['metadata']['resourceVersion']), name)

    def remember_removal(self, name):
        del self.model[name]
        self.remember_world(self.cluster.store.version, name)

    def remember_world(self, version, name):
        assert version == self.cluster.store.version
        self.writes.append((version, name))
        self.worlds[version] = {name: self.labels_of(known) for name, known in self.model.items()}

    @staticmethod
    def labels_of(known):
        return {'color': known['color']} if known['color'] else {}

    @staticmethod
    def selects(selector, labels):
        return selectors.parse_labels(selector).matches(labels)


@pytest.mark.filterwarnings('default::pytest.PytestUnraisableExceptionWarning')
class TestRandomRequests(ClusterMachine.TestCase):
    settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
