"""
For tests of operators: do they come to the same end, whatever happens to them and to their cluster?
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
