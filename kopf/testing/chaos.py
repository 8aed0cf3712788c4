"""
Tools for tests of operators: check that an operator converges to the same state despite faults.
"""

from kopf._kits.chaos.checks import (
    ConvergenceError,
    Divergence,
    Outcome,
    Report,
    check_convergence,
    try_seeds,
)
from kopf._kits.chaos.plans import Perturbation, Plan
from kopf._kits.chaos.timelines import Moment, Timeline
from kopf._kits.chaos.watchdogs import RestlessOperatorError

__all__ = [
    'ConvergenceError',
    'Divergence',
    'Moment',
    'Outcome',
    'Perturbation',
    'Plan',
    'Report',
    'RestlessOperatorError',
    'Timeline',
    'check_convergence',
    'try_seeds',
]
