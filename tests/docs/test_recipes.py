"""
The recipes of the documentation do what the pages say of them: operators of whole blocks, in
virtual time.
"""

import doc_blocks
import pytest

CRD = """
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: kopfexamples.kopf.dev}
    spec:
      group: kopf.dev
      scope: Namespaced
      names: {kind: KopfExample, plural: kopfexamples, singular: kopfexample}
      versions:
        - name: v1
          served: true
          storage: true
          schema:
            openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""

pytestmark = pytest.mark.kopf_sandbox(apply=[CRD])


@pytest.fixture
def run(kopf_simulation, tmp_path):
    """Run an operator of the block of the page with this file name in the first line."""

    def run(page, name):
        (block,) = [
            block
            for block in doc_blocks.read_blocks(page, 'python')
            if block.code.startswith(f'# {name}\n')
        ]
        (tmp_path / name).write_text(block.code)
        return kopf_simulation.run(tmp_path / name, namespaces=['default'])

    return run


@pytest.fixture
def create(kopf_simulation):
    def create(name='example', **content):
        return kopf_simulation.create(
            {
                'apiVersion': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'metadata': {'name': name},
                **content,
            }
        )

    return create


def list_said(capsys, *words):
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith(words)]


@pytest.mark.guarantee('IDM-006', 'IDM-007', 'IDM-009')
def test_steps_that_are_done_are_not_repeated(kopf_simulation, run, create, capsys):
    run('idempotence', 'steps.py')
    create()

    said = []
    for seconds in (15, 10, 30, 10, 60):
        kopf_simulation.sleep(seconds)
        said.append(list_said(capsys, 'BEGIN', 'DISK', 'ACCOUNT', 'END'))

    assert [[line for line in lines if not line.startswith('BEGIN')] for lines in said] == [
        [],
        ['DISK'],
        [],
        ['ACCOUNT', 'END of example: both are ready.'],
        [],
    ]
    assert sum(line == 'BEGIN with example' for lines in said for line in lines) >= 7


@pytest.mark.guarantee('REC-004', 'REC-007')
def test_parents_react_to_their_children(kopf_simulation, run, create, capsys):
    run('reconciliation', 'parents.py')
    create()
    kopf_simulation.create(
        {
            'apiVersion': 'v1',
            'kind': 'Pod',
            'metadata': {'name': 'child', 'labels': {'parent': 'example'}},
            'spec': {'containers': [{'name': 'main', 'image': 'busybox'}]},
        }
    )
    kopf_simulation.sleep(25)
    assert list_said(capsys, 'CHILDREN') == ["CHILDREN: add all: None -> {'child': 'Pending'}"]

    kopf_simulation.patch('pods', 'child', {'status': {'phase': 'Running'}}, subresource='status')
    kopf_simulation.sleep(25)
    assert list_said(capsys, 'CHILDREN') == ['CHILDREN: change child: Pending -> Running']

    kopf_simulation.delete('pods', 'child', grace_period=0)
    kopf_simulation.sleep(25)
    assert list_said(capsys, 'CHILDREN') == ["CHILDREN: remove all: {'child': 'Running'} -> None"]


@pytest.mark.guarantee('TIP-003', 'TIP-004', 'TIP-005')
def test_excluded_handlers_are_never_called_again(kopf_simulation, run, create, capsys):
    operator = run('tips-and-tricks', 'never_again.py')
    create()
    kopf_simulation.sleep(10)
    for number in range(3):
        kopf_simulation.patch('kopfexamples', 'example', {'spec': {'number': number}})
        kopf_simulation.sleep(10)
    operator.stop()
    run('tips-and-tricks', 'never_again.py')
    kopf_simulation.patch('kopfexamples', 'example', {'spec': {'number': 100}})
    kopf_simulation.sleep(10)

    assert list_said(capsys, 'UPDATED', 'MONITORED') == [
        'MONITORED once',
        'UPDATED for the first and the last time',
    ]
