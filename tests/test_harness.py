"""
The promises of the test suite itself: what must fail, fails; what waits, takes no time.
"""

import asyncio
import pathlib
import time

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def run_tests(pytester):
    """
    Run tests that we do not want to have here, in a project with our configuration and harness.
    """
    pytester.makeconftest((ROOT / 'tests/conftest.py').read_text())
    pytester.makepyprojecttoml((ROOT / 'pyproject.toml').read_text())

    def run(source):
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess('.')

    return run


def test_leaked_tasks_fail_the_tests(run_tests):
    result = run_tests("""
        import asyncio
        import contextlib
        import pytest

        @pytest.fixture
        async def leaking_fixture():
            asyncio.create_task(asyncio.sleep(100), name="task-of-fixture")

        @pytest.fixture
        async def tidy_fixture():
            task = asyncio.create_task(asyncio.sleep(100), name="task-of-tidy")
            yield
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        async def test_leaking():
            asyncio.create_task(asyncio.sleep(100), name="task-of-test")

        async def test_using_a_leaking_fixture(leaking_fixture):
            pass

        async def test_using_a_tidy_fixture(tidy_fixture):
            pass
    """)

    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(
        ['*Tasks are left running: task-of-test*', '*Tasks are left running: task-of-fixture*']
    )
    result.stdout.no_fnmatch_line('*task-of-tidy*')


def test_warnings_fail_the_tests(run_tests):
    result = run_tests("""
        import asyncio
        import warnings

        def test_warning():
            warnings.warn("beware")

        async def test_forgetting_to_await():
            asyncio.sleep(1)
    """)

    result.assert_outcomes(failed=2)


def test_unknown_marker_fails_the_run(run_tests):
    result = run_tests("""
        import pytest

        @pytest.mark.guaranty('ABC-001')
        def test_misspelt():
            pass
    """)

    result.assert_outcomes(errors=1)


async def test_virtual_time_takes_no_real_time(virtual_time):
    started = time.perf_counter()

    await asyncio.sleep(1000)

    assert virtual_time.elapsed == 1000
    assert time.perf_counter() - started < 10


async def test_virtual_time_starts_from_zero(virtual_time):
    assert virtual_time.elapsed == 0


async def test_virtual_time_passes_for_timeouts(virtual_time):
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), timeout=12.5)

    assert virtual_time.elapsed == 12.5


async def test_virtual_time_keeps_the_order_of_concurrent_sleeps(virtual_time):
    moments = []

    async def note(delay):
        await asyncio.sleep(delay)
        moments.append((delay, virtual_time.elapsed))

    await asyncio.gather(note(30), note(10), note(20))

    assert moments == [(10, 10), (20, 20), (30, 30)]


async def test_time_is_real_unless_asked_otherwise():
    loop_time = asyncio.get_running_loop().time()

    assert abs(loop_time - time.monotonic()) < 10


def test_kubectl_of_the_environment_is_preferred(run_tests, monkeypatch, tmp_path):
    tool = tmp_path / 'my-kubectl'
    tool.touch(mode=0o755)
    monkeypatch.setenv('KUBECTL', str(tool))

    result = run_tests(f"""
        def test_kubectl(kubectl_path):
            assert str(kubectl_path) == {str(tool)!r}
    """)

    result.assert_outcomes(passed=1)


def test_absence_of_kubectl_is_a_failure_that_tells_what_to_do(run_tests, monkeypatch, tmp_path):
    monkeypatch.delenv('KUBECTL', raising=False)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setenv('PATH', str(tmp_path))
    result = run_tests("""
        def test_kubectl(kubectl_path):
            pass
    """)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*make kubectl*'])


@pytest.mark.parametrize(
    'required, outcome',
    [
        pytest.param('', {'skipped': 1}, id='optional'),
        pytest.param('required', {'errors': 1}, id='required'),
    ],
)
def test_absence_of_the_control_plane_is_told_with_what_to_do(
    run_tests, monkeypatch, tmp_path, required, outcome
):
    monkeypatch.delenv('KUBECONFIG_E2E', raising=False)
    monkeypatch.setenv('KOPF_TESTS_CONTROLPLANE', required)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    result = run_tests("""
        def test_something_real(controlplane):
            pass
    """)

    result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines(['*make controlplane*'])


def test_other_clusters_serve_instead_of_the_control_plane_except_where_it_is_needed(
    run_tests, monkeypatch, tmp_path
):
    kubeconfig = tmp_path / 'kubeconfig'
    kubeconfig.write_text("""
        current-context: x
        contexts: [{name: x, context: {cluster: x, user: x}}]
        clusters: [{name: x, cluster: {server: "https://localhost:1"}}]
        users: [{name: x, user: {token: secret}}]
    """)
    monkeypatch.setenv('KUBECONFIG_E2E', str(kubeconfig))

    result = run_tests("""
        def test_any_cluster(controlplane):
            assert controlplane.own is None
            assert controlplane.login().server == 'https://localhost:1'

        def test_our_processes(own_controlplane):
            pass
    """)

    result.assert_outcomes(passed=1, skipped=1)


def test_outcomes_of_faults_are_printed_as_a_table(run_tests):
    result = run_tests("""
        def test_one(outcomes):
            outcomes.record('400', 'list', 'retried')
            outcomes.record('slow', 'watch', 'waited')

        def test_two(outcomes):
            outcomes.record('400', 'list', 'retried')
            outcomes.record('400', 'list', 'relisted')
    """)

    result.assert_outcomes(passed=2)
    table = result.outlines[result.outlines.index('      list               watch') :][:3]
    assert table[1:] == ['400   retried, relisted', 'slow                     waited']
