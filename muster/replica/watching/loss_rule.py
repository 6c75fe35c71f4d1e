"""Whether a replica's loss is unusual: NaN or infinite, or far above what the run had in its last rounds. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from muster.contract.run.commit import Commit
from muster.contract.spec.watch_rules import Loss

# Of fewer rounds a jump says little: the loss falls quickly at the beginning.
ROUNDS_MIN = 3


def unusual_loss(rule: Loss, value: float | None, recent: Sequence[Commit]) -> str | None:
    """What is unusual about `value`, the loss that the replica has logged last; None if nothing is.

    Args:
        recent: the commits of the last rounds, with the losses of all their members.
    """
    if value is None:
        return None
    name = f"its metric {rule.metric}"
    if not math.isfinite(value):
        return f"{name} is {value}"
    before = [
        [member.metrics[rule.metric] for member in commit.members if rule.metric in member.metrics] for commit in recent
    ]
    rounds = [values for values in before if values]
    if len(rounds) < ROUNDS_MIN:
        return None
    usual = median(value for values in rounds for value in values)
    # A multiple says nothing of a loss that may be 0 or less.
    if usual <= 0 or value <= rule.factor * usual:
        return None
    times = f"{rule.factor:g} times the median of the last {len(rounds)} rounds"
    return f"{name}, {value:.6g}, is more than {times}, {usual:.6g}"
