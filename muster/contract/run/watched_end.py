"""The end of an attempt because of a rule that watches the training."""

from __future__ import annotations

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.exits import ReplicaExit, read_exit
from muster.contract.run.attempt import Attempt
from muster.contract.spec.watch_rules import Rule

EXITS: dict[Rule, ReplicaExit] = {
    Rule.HANG: ReplicaExit.HANG,
    Rule.SLOW: ReplicaExit.SLOW,
    Rule.LOSS: ReplicaExit.LOSS,
    Rule.NO_ROUND: ReplicaExit.NO_ROUND,
}
"""How a replica ends an attempt when a rule says so."""
_RULES = {code: rule for rule, code in EXITS.items()}


def rule_of_end(attempt: Attempt) -> Rule | None:
    """The rule because of which `attempt` ended, as its replica says; None where it ended otherwise."""
    if attempt.failure_class is not FailureClass.INFRASTRUCTURE:
        return None
    found = read_exit(attempt.reason)
    return None if found is None else _RULES.get(found)
