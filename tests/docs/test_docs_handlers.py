"""
The examples of the page on handlers do what the page says.
"""

import textwrap

import pytest
from doc_operators import DATABASES, build_database, write_operator

pytestmark = pytest.mark.kopf_sandbox(apply=[DATABASES])


def is_handled(body):
    annotations = body['metadata'].get('annotations', {})
    return list(annotations) == ['kopf.zalando.org/last-handled-configuration']


@pytest.fixture
def run(kopf_simulation, tmp_path):
    def run(*functions):
        return kopf_simulation.run(write_operator(tmp_path / 'operator.py', 'handlers', *functions))

    return run


@pytest.mark.guarantee('HND-001', 'HND-032', 'RSL-002')
def test_the_first_example(kopf_simulation, run):
    run('create_database')
    kopf_simulation.create(build_database())
    body = kopf_simulation.wait('databases', 'db1', is_handled)

    assert body['status'] == {'create_database': {'ready': True}}


@pytest.mark.guarantee('HND-024', 'HND-033', 'HND-034', 'KWA-040')
def test_handlers_of_changes_are_called_for_what_has_happened(kopf_simulation, run, capsys):
    run('created', 'updated', 'deleted')
    kopf_simulation.create(build_database(spec={'size': '1G'}))
    kopf_simulation.wait('databases', 'db1', is_handled)
    kopf_simulation.patch('databases', 'db1', {'spec': {'size': '2G'}})
    kopf_simulation.wait(
        'databases', 'db1', lambda body: is_handled(body) and '2G' in str(body['metadata'])
    )
    kopf_simulation.delete('databases', 'db1')
    kopf_simulation.wait('databases', 'db1', lambda body: body is None)

    assert capsys.readouterr().out.splitlines() == [
        'Make 1G.',
        'change spec.size: 1G -> 2G',
        'Remove all that belongs to db1.',
    ]


@pytest.mark.guarantee('HND-045', 'NEW-261')
def test_field_handlers_are_called_for_the_field_with_its_values(kopf_simulation, run, capsys):
    run('resize')
    kopf_simulation.create(build_database(spec={'size': '1G', 'other': 1}))
    kopf_simulation.sleep(10)
    for spec in [{'size': '2G'}, {'other': 2}, {'size': None}]:
        kopf_simulation.patch('databases', 'db1', {'spec': spec})
        kopf_simulation.sleep(10)

    assert capsys.readouterr().out.splitlines() == [
        'The size is 1G from the beginning, or since now.',
        'The size was 1G, it is 2G.',
        'The size is not defined any more.',
    ]


@pytest.mark.guarantee('HND-048', 'HND-049', 'HND-051', 'HND-054', 'HND-055', 'HND-056')
def test_sub_handlers_are_made_at_runtime_and_are_followed_by_the_rest(
    kopf_simulation, run, capsys
):
    run('create_users', 'grant_all', 'open_database')
    kopf_simulation.create(build_database(spec={'users': ['alice', 'bob']}))
    body = kopf_simulation.wait('databases', 'db1', is_handled)

    lines = capsys.readouterr().out.splitlines()
    assert body['status'] == {
        'create_users/alice': {'created': True},
        'create_users/bob': {'created': True},
    }
    assert sorted(lines) == [
        'Create alice.',
        'Create bob.',
        'Everyone has access now.',
        *['Grant access to alice.'] * 2,
        *['Grant access to bob.'] * 2,
    ]


@pytest.mark.guarantee('HND-019')
def test_methods_are_called_with_their_objects(kopf_simulation, run, capsys):
    run('provision')
    kopf_simulation.create(build_database())
    kopf_simulation.wait('databases', 'db1', is_handled)

    assert capsys.readouterr().out.splitlines() == ['db1 goes to eu-west']


def test_updates_are_called_for_status_fields_that_other_handlers_name(
    kopf_simulation, tmp_path, capsys
):
    (tmp_path / 'operator.py').write_text(
        textwrap.dedent("""
            import kopf

            @kopf.on.field('databases', field='status.phase')
            def phase(new, **_): print('phase', new)

            @kopf.on.update('databases')
            def unfiltered(diff, **_): print('unfiltered', *diff[0][1])

            @kopf.on.update('databases', field='spec')
            def narrowed(diff, **_): print('narrowed', *diff[0][1])
        """)
    )
    kopf_simulation.run(tmp_path / 'operator.py')
    kopf_simulation.create(build_database(spec={'size': '1G'}))
    kopf_simulation.wait('databases', 'db1', is_handled)
    for patch in ({'status': {'phase': 'Up'}}, {'status': {'other': 1}}, {'spec': {'size': '2G'}}):
        kopf_simulation.patch('databases', 'db1', patch)
        kopf_simulation.sleep(10)

    assert sorted(capsys.readouterr().out.splitlines()) == [
        'narrowed size',
        'phase Up',
        'unfiltered spec size',
        'unfiltered status',
    ]
