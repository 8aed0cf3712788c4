"""
A comparison of two implementations: both run the same operators, separately and in turn.

    python benchmarks/comparison/compare.py --reference PATH_TO_KOPF [--only SCENARIO ...]

The operators run on sandboxes. The reference is a black box: any program with the same command
line, e.g. installed in its own virtual environment. The differences are printed: the calls of
handlers, the objects at the end of each step, and the writes if there are more of them. The exit
code is 1 if there are any unexpected differences.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import pathlib
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence

import expectations
import scenarios
import stages

import kopf.testing

CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'kopfexamples.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'kind': 'KopfExample', 'plural': 'kopfexamples', 'singular': 'kopfexample'},
    },
}
ANYTHING = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
WORKERS = 2

Cast = tuple[str, ...]  # which implementations run the operator: R for the reference, O for ours


def main() -> int:
    arguments = parse_arguments()
    kopfs = {'R': arguments.reference, 'O': arguments.ours}
    chosen = [
        scenario
        for scenario in scenarios.SCENARIOS
        if not arguments.only or scenario.name in arguments.only
    ]
    unexpected = 0
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as executor:
        for scenario in chosen:
            casts = list(itertools.product('RO', repeat=scenario.starts))
            casts = (
                casts
                if len(casts) < 8
                else [tuple('RRR'), tuple('ROR'), tuple('ORO'), tuple('OOO')]
            )
            runs = [
                executor.submit(run, scenario, cast, kopfs, arguments.patience) for cast in casts
            ]
            baseline, *others = [run.result() for run in runs]
            for cast, scenes in zip(casts[1:], others, strict=True):
                differences = compare(baseline, scenes, counts_writes=scenario.counts_writes)
                unexpected += report(scenario, cast, differences, verbose=arguments.verbose)
    print(f'Unexpected differences: {unexpected}.')
    return 1 if unexpected else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description='Compare this implementation with another one.')
    parser.add_argument(
        '--reference', required=True, help='the command of the other implementation'
    )
    parser.add_argument('--ours', default=str(pathlib.Path(sysconfig.get_path('scripts'), 'kopf')))
    parser.add_argument(
        '--only', nargs='+', metavar='SCENARIO', help='the scenarios to run; all by default'
    )
    parser.add_argument(
        '--patience', type=float, default=4.0, help='seconds of silence after which a step is over'
    )
    parser.add_argument('--verbose', action='store_true', help='show the expected differences too')
    arguments = parser.parse_args()
    for path in (arguments.reference, arguments.ours):
        if shutil.which(path) is None:
            parser.error(f'there is no such program: {path}')
    return arguments


def run(
    scenario: scenarios.Scenario, cast: Cast, kopfs: dict[str, str], patience: float
) -> list[stages.Scene]:
    """Play the scenario on a new sandbox."""
    with tempfile.TemporaryDirectory() as directory, kopf.testing.Sandbox() as sandbox:
        sandbox.apply(build_crd(has_status=scenario.has_status))
        stage = stages.Stage(
            sandbox,
            scenario.operator,
            [kopfs[who] for who in cast],
            calls=pathlib.Path(directory, 'calls'),
            patience=patience,
        )
        return stage.play(scenario.play)


def build_crd(*, has_status: bool) -> dict[str, object]:
    version = {
        'name': 'v1',
        'served': True,
        'storage': True,
        'subresources': {'status': {}} if has_status else None,
        'schema': {
            'openAPIV3Schema': {
                'type': 'object',
                'properties': {'spec': ANYTHING, 'status': ANYTHING},
            }
        },
    }
    return {**CRD, 'spec': {**CRD['spec'], 'versions': [version]}}  # type: ignore[dict-item]


def compare(
    baseline: Sequence[stages.Scene], scenes: Sequence[stages.Scene], *, counts_writes: bool
) -> list[str]:
    """List the differences between a run and the run by the reference alone."""
    differences = [
        difference
        for before, after in zip(baseline, scenes, strict=True)
        for difference in compare_scenes(before, after, counts_writes=counts_writes)
    ]
    return [*differences, *compare_leftovers(baseline[-1], scenes[-1])]


def compare_scenes(
    baseline: stages.Scene, scene: stages.Scene, *, counts_writes: bool
) -> Iterator[str]:
    expected, actual = collections.Counter(baseline.calls), collections.Counter(scene.calls)
    for sign, calls in [('missing', expected - actual), ('extra', actual - expected)]:
        for call in sorted(calls.elements()):
            yield f'{scene.name}: {sign} call: {describe_call(call)}'
    for name in sorted({*baseline.objects, *scene.objects}):
        before, after = baseline.objects.get(name), scene.objects.get(name)
        if before != after:
            yield f'{scene.name}: object {name}: {json.dumps(after)} instead of {json.dumps(before)}'
    if counts_writes and scene.writes > baseline.writes:
        yield f'{scene.name}: writes: {scene.writes} instead of {baseline.writes}'


def compare_leftovers(baseline: stages.Scene, scene: stages.Scene) -> Iterator[str]:
    for name in sorted({*baseline.leftovers, *scene.leftovers}):
        before, after = baseline.leftovers.get(name, []), scene.leftovers.get(name, [])
        if not set(after) <= set(before):
            yield f'in the end: annotations left on {name}: {after} instead of {before}'


def describe_call(call: str) -> str:
    parsed = json.loads(call)
    words = ' '.join(str(parsed.pop(key)) for key in ('handler', 'name', 'reason'))
    return f'{words} {json.dumps(parsed, sort_keys=True)}'


def report(
    scenario: scenarios.Scenario, cast: Cast, differences: Sequence[str], *, verbose: bool
) -> int:
    """Print the differences; return the number of unexpected ones."""
    unexpected = 0
    print(f'{scenario.name}, {" then ".join(cast)}: {len(differences)} differences')
    for difference in differences:
        reasons = [
            expectation.reason
            for expectation in expectations.EXPECTATIONS
            if expectation.covers(scenario.name, difference)
        ]
        unexpected += not reasons
        if not reasons or verbose:
            print(f'  {"expected" if reasons else "UNEXPECTED"}: {difference}')
        if reasons and verbose:
            print(f'    {reasons[0]}')
    sys.stdout.flush()
    return unexpected


if __name__ == '__main__':
    sys.exit(main())
