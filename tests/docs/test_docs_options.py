"""
The examples of the pages on arguments, filters, errors and results do what the pages say.
"""

import doc_blocks
import pytest
from doc_operators import DATABASES, build_database

import kopf

pytestmark = pytest.mark.kopf_sandbox(apply=[DATABASES])


@pytest.mark.guarantee('KWA-035', 'NEW-051', 'NEW-053')
def test_patches_are_both_merged_and_made_by_functions(kopf_simulation, run):
    run('kwargs', 'patch_fn')
    kopf_simulation.create(build_database(annotations={'example.com/obsolete': 'yes'}))
    kopf_simulation.sleep(60)
    body = kopf_simulation.get('databases', 'db1')

    assert body['spec'] == {'size': '1G'}
    assert body['status'] == {'phase': 'Ready', 'conditions': [{'type': 'Ready', 'status': 'True'}]}
    assert body['metadata']['labels'] == {'tier': 'bronze'}
    assert 'example.com/obsolete' not in body['metadata']['annotations']


@pytest.mark.guarantee('KWA-016')
def test_the_param_tells_which_decorator_has_caused_the_call(kopf_simulation, run, read):
    run('kwargs', 'tell')
    kopf_simulation.create(build_database(spec={'size': '1G'}))
    kopf_simulation.sleep(60)
    kopf_simulation.patch('databases', 'db1', {'spec': {'size': '2G', 'version': '15'}})
    kopf_simulation.sleep(60)

    assert sorted(read()) == ['Size: 1G -> 2G', 'Size: None -> 1G', 'Version: None -> 15']


@pytest.fixture
def registry():
    previous = kopf.get_default_registry()
    kopf.set_default_registry(kopf.OperatorRegistry())
    yield
    kopf.set_default_registry(previous)


@pytest.mark.guarantee('KWA-040', 'KWA-042')
@pytest.mark.usefixtures('registry')
def test_the_printed_diff_is_as_shown(read):
    printing = [
        block.code
        for block in doc_blocks.read_blocks('kwargs', 'python')
        if 'print_diff' in block.code
    ]
    exec('import kopf\n' + ''.join(printing), {})
    shown = [block.code for block in doc_blocks.read_blocks('kwargs', 'console')]

    assert read() == ''.join(shown).splitlines()


@pytest.mark.guarantee('FLT-013', 'FLT-014')
def test_updates_match_by_either_the_old_or_the_new_value(kopf_simulation, run, read):
    run('filters', 'to_or_from_15')
    kopf_simulation.create(build_database(spec={'version': '13'}))
    for spec in [
        {'version': '14'},
        {'version': '15'},
        {'size': '1G'},
        {'version': '16'},
        {'version': None},
    ]:
        kopf_simulation.sleep(60)
        kopf_simulation.patch('databases', 'db1', {'spec': spec})
    kopf_simulation.sleep(60)

    assert read() == ['From 14 to 15.', 'From 15 to 16.']


@pytest.mark.guarantee('ERR-022')
def test_retries_are_calls_in_total(kopf_simulation, run, caplog):
    run('errors', 'three_times')
    kopf_simulation.create(build_database())
    kopf_simulation.sleep(3600)

    text = '\n'.join([*caplog.messages, *(record.exc_text or '' for record in caplog.records)])
    assert 'The attempt number 3 has failed.' in text
    assert 'The attempt number 4 has failed.' not in text


@pytest.mark.guarantee('RSL-005')
def test_handlers_wait_for_the_results_of_others(kopf_simulation, run, read):
    run('results', 'create_backup', 'create_disk', 'assign_address')
    kopf_simulation.create(build_database())
    kopf_simulation.sleep(60)

    assert read() == ['Back up disk-123.']
    assert kopf_simulation.get('databases', 'db1')['status'] == {
        'create_disk': {'name': 'disk-123', 'size': '1G'},
        'address': '10.0.0.1',
    }
