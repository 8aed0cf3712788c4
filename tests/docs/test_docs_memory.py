"""
The examples of the pages on memos and indices do what the pages say.
"""

import logging

import pytest
from doc_operators import DATABASES, build_database, write_operator

import kopf

pytestmark = pytest.mark.kopf_sandbox(apply=[DATABASES])


def build_pod(name, *, node=None, **metadata):
    return {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'metadata': {'name': name, 'namespace': 'default', **metadata},
        'spec': {
            'containers': [{'name': 'main', 'image': 'image'}],
            **({'nodeName': node} if node else {}),
        },
    }


@pytest.fixture
def run(kopf_simulation, tmp_path):
    def run(page, *functions, **options):
        return kopf_simulation.run(
            write_operator(tmp_path / 'operator.py', page, *functions), **options
        )

    return run


@pytest.mark.guarantee('MEM-002', 'MEM-004')
def test_every_object_has_its_own_memo(kopf_simulation, run, read):
    run('memos', 'count_events')
    kopf_simulation.create(build_pod('pod1'))
    kopf_simulation.create(build_pod('pod2'))
    kopf_simulation.sleep(60)
    kopf_simulation.patch('pods', 'pod1', {'metadata': {'labels': {'a': 'b'}}})
    kopf_simulation.sleep(60)

    assert sorted(read()) == ['pod1 has 1 events.', 'pod1 has 2 events.', 'pod2 has 1 events.']


@pytest.mark.guarantee('MEM-002')
def test_what_one_handler_has_put_into_the_memo_is_there_for_another(kopf_simulation, run, read):
    run('memos', 'connect', 'ping')
    kopf_simulation.create(build_database(spec={'address': 'here'}))
    kopf_simulation.sleep(30)

    assert read() == ['connection to here']


@pytest.mark.guarantee('MEM-006', 'MEM-007', 'MEM-008', 'MEM-009')
def test_what_is_put_into_the_memo_at_startup_is_shared(kopf_simulation, run):
    memo = kopf.Memo()
    run('memos', 'prepare', memo=memo)
    kopf_simulation.create(build_database('db1'))
    kopf_simulation.create(build_database('db2'))
    kopf_simulation.sleep(60)

    assert sorted(memo.jobs.get_nowait() for _ in range(memo.jobs.qsize())) == ['db1', 'db2']


@pytest.mark.guarantee('IDX-002', 'IDX-003', 'IDX-010', 'IDX-031')
def test_handlers_of_one_resource_know_the_objects_of_another(kopf_simulation, run, caplog):
    kopf_simulation.create({'apiVersion': 'v1', 'kind': 'Node', 'metadata': {'name': 'node1'}})
    kopf_simulation.create(build_pod('pod1', node='node1'))
    kopf_simulation.create(build_pod('pod2', node='node1'))
    kopf_simulation.create(build_pod('pod3', node='node2'))
    caplog.set_level(logging.INFO)
    run('indexing', 'pods_by_node')
    kopf_simulation.sleep(10)
    kopf_simulation.delete('pods', 'pod1', grace_period=0)
    kopf_simulation.sleep(60)

    assert [text for text in caplog.messages if 'pods here' in text] == [
        'There are 2 pods here.',
        'There are 1 pods here.',
    ]


@pytest.mark.guarantee('IDX-015', 'IDX-016')
def test_indices_are_as_shown(kopf_simulation, tmp_path, read):
    path = write_operator(tmp_path / 'operator.py', 'indexing', 'pods_by_label', 'expected')
    with path.open('a') as file:
        file.write("""
@kopf.on.create('databases')
async def show(pods_by_label, **_):
    print({key: sorted(values) for key, values in pods_by_label.items()} == expected)
""")
    kopf_simulation.create(build_pod('pod1', labels={'app': 'web', 'tier': 'front'}))
    kopf_simulation.create(build_pod('pod2', labels={'app': 'web'}))
    kopf_simulation.run(path)
    kopf_simulation.create(build_database())
    kopf_simulation.sleep(60)

    assert read() == ['True']
