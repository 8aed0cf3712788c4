"""
Stores against a model: whatever the order of events, lists and answers to our own writes, each
object is in the newest of the states that were delivered.
"""

import collections

import hypothesis
import hypothesis.strategies as st
import pytest
from stored_objects import CHILDREN, build_body

from kopf._core.engines.reconciling import stores

NAMES, OWNERS = ('x', 'y'), ('p', 'q')


class World:
    """A cluster with all its history, one stream of it, and the store that is fed by it."""

    def __init__(self):
        self.store = stores.Store(CHILDREN, clock=lambda: self.now)
        self.store.serve(None)
        self.now = 0.0
        self.states = [{}]  # by the version
        self.events = [None]  # by the version, of which each makes one
        self.own = set()  # the versions made by us
        self.answers = collections.deque()
        self.reached = 0  # by the stream
        self.known = {}  # by the stream: uids by names
        self.noted = collections.Counter()  # the version of the last noted answer by names

    def write(self, name, owner, is_ours):
        state, version = self.states[-1], len(self.states)
        uid = state[name]['metadata']['uid'] if name in state else f'uid-{version}'
        body = build_body(name, uid, str(version), owner=owner)
        self.events.append(('MODIFIED' if name in state else 'ADDED', body))
        self.states.append({**state, name: body})
        if is_ours:
            self.own.add(version)
            self.answers.append((version, body, None))

    def delete(self, name, is_ours):
        state, version = self.states[-1], len(self.states)
        if name not in state:
            return
        body = state[name]
        uid = body['metadata']['uid']
        seen = self.store.get_entry('ns', name)
        if is_ours and (seen is None or seen.uid != uid):
            return  # we delete only what we see
        self.events.append(
            ('DELETED', build_body(name, uid, str(version), owner=self.get_owner(body)))
        )
        self.states.append({other: state[other] for other in state if other != name})
        if is_ours:
            self.own.add(version)
            self.answers.append((version, None, (name, uid)))

    def answer(self):
        if not self.answers:
            return
        version, body, deleted = self.answers.popleft()
        if body is None:
            name, uid = deleted
            self.store.note_deleted('ns', name, uid)
        else:
            name = body['metadata']['name']
            self.store.note_written(body)
        self.noted[name] = version

    def deliver(self):
        if self.reached + 1 >= len(self.events):
            return
        self.reached += 1
        type, body = self.events[self.reached]
        name = body['metadata']['name']
        change = self.store.put(type, body)
        if type == 'DELETED':
            self.known.pop(name, None)
            return
        self.known[name] = body['metadata']['uid']
        if self.reached not in self.own:
            assert change.is_news or self.is_deleted_by_us(name)
        elif self.reached <= self.noted[name]:
            assert change.is_echo

    def relist(self, share):
        """List the objects as of a version that is not older than the stream."""
        version = self.reached + round((len(self.states) - 1 - self.reached) * share)
        state = self.states[version]
        for name, uid in self.known.items():
            if name not in state or state[name]['metadata']['uid'] != uid:
                self.store.put('DELETED', build_body(name, uid, None))
        for body in state.values():
            self.store.put(None, body)
        self.store.note_listed(None, str(version))
        self.known = {name: body['metadata']['uid'] for name, body in state.items()}
        self.reached = version

    def is_deleted_by_us(self, name):
        return any(
            event[0] == 'DELETED' and event[1]['metadata']['name'] == name
            for version, event in enumerate(self.events)
            if version in self.own
        )

    def get_owner(self, body):
        return body['metadata']['ownerReferences'][0]['uid']

    def check(self):
        expected = {}
        for name in NAMES:
            body = self.states[max(self.reached, self.noted[name])].get(name)
            if body is not None:
                expected[name] = body
        assert {body['metadata']['name']: body for body in self.store.iter()} == expected
        assert {body['metadata']['name']: body for body in self.store.iter('ns')} == expected
        for owner in OWNERS:
            owned = [body for body in expected.values() if self.get_owner(body) == owner]
            assert self.store.list_owned(owner) == sorted(
                owned, key=lambda body: body['metadata']['name']
            )
        assert len(self.store) == len(expected)
        assert self.store.size == sum(len(entry.packed) for entry in self.store.iter_entries())


NAME, OWNER, IS_OURS = st.sampled_from(NAMES), st.sampled_from(OWNERS), st.booleans()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just('write'), NAME, OWNER, IS_OURS),
        st.tuples(st.just('delete'), NAME, IS_OURS),
        st.tuples(st.just('answer')),
        st.tuples(st.just('deliver')),
        st.tuples(st.just('relist'), st.sampled_from([0.0, 0.5, 1.0])),
    ),
    max_size=40,
)


@pytest.mark.guarantee('RCL-004')
@hypothesis.settings(max_examples=500, deadline=None)
@hypothesis.given(steps=STEPS)
def test_every_object_is_in_the_newest_delivered_state(steps):
    world = World()

    for name, *args in steps:
        getattr(world, name)(*args)
        world.check()

    while world.answers:
        world.answer()
        world.check()
    while world.reached + 1 < len(world.events):
        world.deliver()
        world.check()
    world.now += 10_000
    world.store.expire()
    world.check()
