"""
The examples of the pages on daemons and timers do what the pages say.
"""

import pytest
from doc_operators import DATABASES, build_database

pytestmark = pytest.mark.kopf_sandbox(apply=[DATABASES])


@pytest.mark.guarantee('DMN-002', 'DMN-010', 'DMN-015')
def test_daemons_live_with_their_objects_and_clean_up(kopf_simulation, run, read):
    run('daemons', 'follow')
    kopf_simulation.create(build_database())
    kopf_simulation.sleep(3600)
    assert read() == []
    kopf_simulation.delete('databases', 'db1')
    kopf_simulation.wait('databases', 'db1', lambda body: body is None)

    assert read() == ['db1 is not followed any more.']


@pytest.mark.guarantee('DMN-032')
def test_the_object_is_live_in_daemons_and_what_is_taken_from_it_is_not(kopf_simulation, run, read):
    run('daemons', 'watch_the_size')
    kopf_simulation.create(build_database(spec={'size': '1G'}))
    kopf_simulation.sleep(60)
    kopf_simulation.patch('databases', 'db1', {'spec': {'size': '2G'}})
    kopf_simulation.sleep(60)

    assert read() == ['It is 2G from now on.']


@pytest.mark.guarantee('DMN-025')
def test_daemons_begin_anew_by_temporary_errors(kopf_simulation, run, caplog):
    run('daemons', 'stay_connected')
    kopf_simulation.create(build_database())
    kopf_simulation.sleep(602 * 3)

    assert len([line for line in caplog.messages if 'It is time to reconnect.' in line]) == 3


@pytest.mark.guarantee('TMR-002')
def test_timers_are_called_again_and_again(kopf_simulation, run):
    run('timers', 'measure')
    kopf_simulation.create(build_database())
    kopf_simulation.sleep(1)
    kopf_simulation.patch('databases', 'db1', {'status': {'used': None}})
    kopf_simulation.sleep(58)
    assert 'used' not in kopf_simulation.get('databases', 'db1').get('status', {})
    kopf_simulation.sleep(2)

    assert kopf_simulation.get('databases', 'db1')['status'] == {'used': '512M'}


@pytest.mark.guarantee('TMR-008', 'NEW-258')
def test_idle_timers_are_called_once_after_each_row_of_changes(kopf_simulation, run, read):
    run('timers', 'optimise')
    kopf_simulation.create(build_database(spec={'x': 1}))
    kopf_simulation.sleep(599)
    kopf_simulation.patch('databases', 'db1', {'spec': {'x': 2}})
    kopf_simulation.sleep(599)
    assert read() == []
    kopf_simulation.sleep(3600)

    assert read() == ['db1 is not changed for 10 minutes.']
