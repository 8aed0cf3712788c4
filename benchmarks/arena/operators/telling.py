"""
The reports of operators: lines of JSON in the file ``$BENCH_PROGRESS``.

Counts are reported only when they are complete, so that reporting does not affect the measurements.
"""

import collections
import json
import os

TOTAL, PROGRESS = int(os.environ['BENCH_TOTAL']), os.environ['BENCH_PROGRESS']
RESOURCE = ('bench.dev', 'v1', 'loads')
counts = collections.Counter()


def add(stage):
    """Count one more object; report every time all objects are counted."""
    counts[stage] += 1
    if counts[stage] % TOTAL == 0:
        tell({stage: counts[stage]})


def tell(figures):
    with open(PROGRESS, 'a') as file:
        file.write(f'{json.dumps(figures)}\n')
