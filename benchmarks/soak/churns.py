"""
Churns: users that continuously create, edit and delete objects, and a cluster with faults.
"""

import contextlib

import kopf.testing

KINDS = {'apples': 'Apple', 'pears': 'Pear', 'plums': 'Plum'}
POPULATION = 60  # of each kind
# The number of plums with a daemon in a thread: constant, so that their stacks do not matter.
THREADED = 3


def build_crd(plural, kind):
    anything = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    version = {
        'name': 'v1',
        'served': True,
        'storage': True,
        'subresources': {'status': {}},
        'schema': {
            'openAPIV3Schema': {
                'type': 'object',
                'properties': {'spec': anything, 'status': anything},
            }
        },
    }
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.soak.dev'},
        'spec': {
            'group': 'soak.dev',
            'scope': 'Namespaced',
            'versions': [version],
            'names': {'plural': plural, 'kind': kind, 'singular': kind.lower()},
        },
    }


class Churn:
    """Users that create, edit and delete objects, always under new names."""

    def __init__(self, sandbox, chance):
        self._sandbox, self._chance = sandbox, chance
        self._numbers = {plural: [] for plural in KINDS}  # of the existing objects
        self._threaded = set()  # the numbers of the objects with daemons in threads
        self._last = 0

    @property
    def threaded(self):
        """The expected number of daemons in threads."""
        return len(self._threaded)

    def act(self):
        """Change some objects; keep their number."""
        plural = self._chance.choice(list(KINDS))
        numbers = self._numbers[plural]
        if len(numbers) < POPULATION:
            self._create(plural)
        elif self._chance.random() < 0.5:
            self._delete(plural, numbers.pop(self._chance.randrange(len(numbers))))
        with contextlib.suppress(kopf.testing.ApiError):
            name, size = f'{plural}-{self._chance.choice(numbers)}', self._chance.randrange(1000)
            self._sandbox.patch(plural, name, {'spec': {'size': size}})

    def fill(self):
        """Create objects up to the maximum, so that all moments of rest are comparable."""
        for plural, numbers in self._numbers.items():
            while len(numbers) < POPULATION:
                self._create(plural)

    def _create(self, plural):
        self._last += 1
        if plural == 'plums' and len(self._threaded) < THREADED:
            self._threaded.add(self._last)
        labels = {'soak': 'yes', 'thread': 'yes' if self._last in self._threaded else 'no'}
        self._sandbox.create(
            {
                'apiVersion': 'soak.dev/v1',
                'kind': KINDS[plural],
                'spec': {'size': self._last},
                'metadata': {
                    'name': f'{plural}-{self._last}',
                    'namespace': 'default',
                    'labels': labels,
                },
            }
        )
        self._numbers[plural].append(self._last)

    def _delete(self, plural, number):
        self._threaded.discard(number)
        with contextlib.suppress(kopf.testing.ApiError):
            self._sandbox.delete(plural, f'{plural}-{number}')


def disturb(sandbox, chance):
    """Inject a random fault of the kinds that happen in clusters."""
    faults = sandbox.faults
    match chance.randrange(7):
        case 0:
            faults.cut_streams()
        case 1:
            sandbox.compact()
            faults.end_streams(410)
        case 2:
            faults.inject(
                verb='patch', code=chance.choice([409, 429, 500, 503]), times=chance.randint(1, 5)
            )
        case 3:
            faults.inject(verb='patch', cut=True, times=chance.randint(1, 3))
        case 4:
            faults.inject(verb='list', code=503, times=2)
            faults.cut_streams()
        case 5:
            faults.inject(verb='watch', code=410, times=1)
            faults.cut_streams()
        case 6:
            faults.inject(verb='patch', latency=0.5, times=3)
