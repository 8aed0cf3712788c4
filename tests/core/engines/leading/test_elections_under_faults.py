"""
Elections in a bad network, with clocks of different rates: there are never two leaders.

The whole history of each seed is simulated: replicas crash, stop and wake up; requests and
responses are delayed, lost, or doubled. A clock of a replica can be up to 30 % slower than others.
"""

import dataclasses
import datetime
import heapq
import itertools
import os
import random

import pytest

from kopf._core.engines.leading import elections
from kopf._core.engines.leading.elections import Observed, Read, Refusal, Role, State, Terms, Write
from kopf.testing import Span, find_overlaps

SEEDS = int(os.environ.get('KOPF_ELECTION_SEEDS', '300'))
STEP = 50
TURMOIL, PEACE = 200.0, 60.0
TODAY = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)


class World:
    """The API server with one Lease, and everything that is going to happen."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now, self.agenda, self.counter = 0.0, [], itertools.count()
        self.lease, self.version = None, 0
        self.loss, self.slowness = (
            self.random.choice([0, 0.1, 0.5]),
            self.random.choice([0.1, 3, 8]),
        )
        self.spans = []

    def after(self, delay, fn, *args):
        heapq.heappush(self.agenda, (self.now + delay, next(self.counter), fn, args))

    def run(self, until):
        while self.agenda and self.agenda[0][0] <= until:
            self.now, _, fn, args = heapq.heappop(self.agenda)
            fn(*args)
        self.now = until

    def send(self, request, respond):
        """Deliver the request at some time, once, twice or never; and so the responses."""
        for _ in range(self.count_copies()):
            self.after(self.delay(), self.serve, request, respond)

    def serve(self, request, respond):
        answer = self.execute(request)
        for _ in range(self.count_copies()):
            self.after(self.delay(), respond, answer)

    def execute(self, request):
        if isinstance(request, Write):
            if self.lease is None and request.version is not None:
                return Refusal.ABSENT
            if self.lease is not None and request.version != str(self.version):
                return Refusal.CONFLICT
            self.version += 1
            self.lease = request.spec
        return Refusal.ABSENT if self.lease is None else Observed(str(self.version), self.lease)

    def count_copies(self):
        is_lost = self.now < TURMOIL and self.random.random() < self.loss
        return 0 if is_lost else 1 + (self.random.random() < 0.1)

    def delay(self):
        return self.random.expovariate(1 / self.slowness) if self.now < TURMOIL else 0.01


class Replica:
    """One process: its clock, its state, its only request in flight."""

    def __init__(self, world, name, *, rate):
        self.world, self.name, self.rate = world, name, rate
        self.shift = world.random.uniform(0, 1e6)
        self.state = State(name, Terms())
        self.request = self.since = None
        self.is_dead, self.asleep_until = False, 0.0
        self.span = None
        self.step()

    @property
    def now(self):
        return self.shift + self.world.now * self.rate

    @property
    def is_leading(self):
        is_led = self.state.role is Role.LEADING and self.now < self.state.deadline
        return is_led and not self.is_dead

    def step(self):
        """Do what is due; stopped processes do it when they wake up."""
        if self.is_dead:
            return
        if self.world.now < self.asleep_until:
            self.world.after(self.asleep_until - self.world.now, self.step)
            return
        today = TODAY + datetime.timedelta(microseconds=next(self.world.counter))
        action = elections.decide(self.state, now=self.now, today=today)
        match action:
            case elections.Lose():
                self.die()
            case elections.Wait(until):
                self.world.after((until - self.now) / self.rate + 0.001, self.step)
            case Read() | Write() if self.request is None:
                self.request, self.since = action, self.now
                self.world.send(action, lambda answer: self.take(action, answer))
                self.world.after(
                    self.state.terms.timeout / self.rate, self.take, action, Refusal.FAILED
                )

    def take(self, request, answer):
        if self.is_dead or self.request is not request:
            return
        if self.world.now < self.asleep_until:
            self.world.after(self.asleep_until - self.world.now, self.take, request, answer)
            return
        chance = self.world.random.random()
        self.request = None
        self.state = elections.react(
            self.state, request, answer, since=self.since, now=self.now, chance=chance
        )
        self.note()
        self.step()

    def note(self):
        """Extend the time for which this replica believes to lead; the fence ends it on time."""
        if self.state.role is Role.LEADING:
            end = self.world.now + (self.state.deadline - self.now) / self.rate
            start = self.world.now if self.span is None else self.span.start
            self.span = Span(self.name, 'lease', start, max(start, end))

    def die(self):
        self.is_dead = True
        if self.span is not None:
            self.world.spans.append(
                dataclasses.replace(self.span, end=min(self.span.end, self.world.now))
            )


def simulate(seed):
    world = World(seed)
    slowest = world.random.choice([0.7, 1.0])
    names = itertools.count()

    def start():
        rate = world.random.choice([slowest, slowest / 0.7, world.random.uniform(slowest, 1 / 0.7)])
        return Replica(world, f'r{next(names)}', rate=min(rate, slowest / 0.7))

    replicas = [start() for _ in range(3)]
    while world.now < TURMOIL:
        world.run(world.now + world.random.expovariate(1 / 10))
        victim = world.random.choice(replicas)
        if world.random.random() < 0.3:
            victim.die()
        else:
            victim.asleep_until = world.now + world.random.expovariate(1 / 15)
        replicas = [start() if replica.is_dead else replica for replica in replicas]
    world.run(world.now + PEACE)
    leaders = [one for one in replicas if one.is_leading]
    for replica in replicas:
        if not replica.is_dead:
            replica.die()
    return world, leaders


@pytest.mark.guarantee('LDR-002')
@pytest.mark.parametrize('first', range(0, SEEDS, STEP))
def test_there_are_never_two_leaders_and_there_is_one_in_the_end(first):
    changes = 0
    for seed in range(first, first + STEP):
        world, leaders = simulate(seed)

        assert find_overlaps(world.spans) == [], f'seed {seed}'
        assert len(leaders) == 1, f'seed {seed}'
        changes += len(world.spans)

    assert changes > STEP * 2  # the leaders do change


@pytest.mark.guarantee('LDR-002')
def test_the_simulation_notices_two_leaders_if_the_clocks_differ_too_much(monkeypatch):
    monkeypatch.setattr(elections.State, 'expiry', property(lambda self: self.changed + 5))

    assert any(find_overlaps(simulate(seed)[0].spans) for seed in range(50))
