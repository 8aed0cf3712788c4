"""
The real cluster of the tests: our own control plane, or that of ``$KUBECONFIG_E2E``; one for the
whole session.

Where there is none, the tests that need it are skipped, and the closing lines of pytest say so; if
it is required (``KOPF_TESTS_CONTROLPLANE=required``, as in the project's own checks), they fail
instead.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator

import controlplanes
import pytest

import kopf
from kopf._cogs.structs import credentials

EXTERNAL = 'KUBECONFIG_E2E'
REQUIRED = 'KOPF_TESTS_CONTROLPLANE'
FOREIGNNESS = f'It needs our own control plane, and {EXTERNAL} is set to another cluster.'
ABSENCE = f'There is no control plane: run `make controlplane` (needs Go), or set {EXTERNAL} to a kubeconfig.'


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A real cluster, with the rights of its administrator."""

    kubeconfig: pathlib.Path
    own: controlplanes.ControlPlane | None = None

    def login(self) -> credentials.ConnectionInfo:
        """Read the kubeconfig as operators do."""
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv('KUBECONFIG', str(self.kubeconfig))
            info = kopf.login_with_kubeconfig()
        assert info is not None, f'There is no kubeconfig in {self.kubeconfig}.'
        return info


@pytest.fixture(scope='session')
def controlplane() -> Iterator[Cluster]:
    """Any real cluster. The tests must leave nothing in it, and expect anything there."""
    external = os.environ.get(EXTERNAL)
    if external:
        yield Cluster(pathlib.Path(external))
        return
    build = controlplanes.find_build(os.environ)
    if build is None:
        give_up = pytest.fail if os.environ.get(REQUIRED) == 'required' else pytest.skip
        give_up(ABSENCE)
    with controlplanes.run_controlplane(build) as started:
        yield Cluster(started.admin.kubeconfig, own=started)


@pytest.fixture(scope='session')
def own_controlplane(controlplane: Cluster) -> controlplanes.ControlPlane:
    """Our own control plane: with its processes, its audit log, and the tokens of its users."""
    if controlplane.own is None:
        pytest.skip(FOREIGNNESS)
    return controlplane.own


def write_absence(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped and why, if there were any."""
    for reason in (ABSENCE, FOREIGNNESS):
        skipped = [
            report
            for report in terminalreporter.stats.get('skipped', ())
            if reason in str(report.longrepr)
        ]
        if skipped:
            terminalreporter.write_line(f'{len(skipped)} tests were skipped. {reason}', yellow=True)
