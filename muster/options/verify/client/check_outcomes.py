"""What a verification found: its checks, each with an outcome and one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from pydantic import Field

from muster.contract.document import Document
from muster.contract.timestamps import Timestamp

_ASSUMES = {
    "checkpoint-deleted": "SageMaker deletes from S3 what a container deletes from its checkpoint directory",
    "checkpoint-restored": "SageMaker restores everything under the checkpoint prefix in a new job, also what a failed "
    "job left",
    "result": "manifest.json is at the root of output.tar.gz, as it was in /opt/ml/output/data",
    "image": "AWS's own training images are in the registry that their address names, in every region",
    "job-event-delay": "the end of a training job reaches the stack within two minutes, as an event",
    "prices": "the Price List API lists training under productFamily `ML Instance` with a usage type that ends in "
    "Train:TYPE",
    "run": "SageMaker gives a job's sessions the session tags of the session that created it, and that its download of "
    "channels, its sync of checkpoints and its upload of outputs need no listing of the bucket without a prefix and "
    "take 403 for a missing key",
}
"""What Muster assumes of AWS and only an account can show, by the check that shows it."""


class CheckOutcome(StrEnum):
    """How a check ended. Only `failed` makes the verification fail."""

    OK = "ok"
    FAILED = "failed"
    UNCHECKED = "unchecked"
    """It could not be checked; the check says why."""
    INFO = "info"
    """There is nothing to judge: what was seen is for information."""


class Check(Document):
    """One check."""

    name: str = Field(description="the same in every version: for scripts")
    outcome: CheckOutcome
    seen: str = Field(description="what was seen, in one sentence")
    remedy: str = Field(default="", description="what to do; a statement or a command can be pasted")
    assumes: str = Field(
        default="", description="what Muster assumes of AWS, where only an account can show whether it holds"
    )


class Promise(Document):
    """What the run of a verification costs and how long it takes, at most."""

    usd: float | None = Field(description="null where the instance type has no price")
    made_of: str = Field(description="the parts of the price")
    minutes: int = Field(description="as a rule")
    minutes_at_most: int = Field(description="then the run is cancelled")


class Verification(Document):
    """All checks of one call of `muster verify`."""

    stack: str
    region: str
    version: str = Field(description="of the client")
    started_at: Timestamp
    promise: Promise | None = Field(description="of the run; null with --no-run")
    run: str | None = Field(description="the run that was started; null when there was none")
    checks: tuple[Check, ...]

    def count(self, outcome: CheckOutcome) -> int:
        """How many checks ended like this."""
        return sum(check.outcome is outcome for check in self.checks)

    @property
    def passed(self) -> bool:
        """Whether no check has failed."""
        return self.count(CheckOutcome.FAILED) == 0


def check(name: str, outcome: CheckOutcome, seen: str, remedy: str = "") -> Check:
    """A check, with what it assumes of AWS."""
    return Check(name=name, outcome=outcome, seen=seen, remedy=remedy, assumes=_ASSUMES.get(name, ""))


def judged(name: str, seen: str, problems: Mapping[str, object], remedy: str = "") -> Check:
    """Failed with all `problems` whose value is true, or ok with what was `seen`."""
    found = "; ".join(words for words, is_so in problems.items() if is_so)
    return check(name, CheckOutcome.FAILED, f"{found}.", remedy) if found else check(name, CheckOutcome.OK, seen)


def check_lines(check: Check) -> Iterator[str]:
    """A check for people: its outcome, its name and what was seen; what to do; an assumption that does not hold."""
    yield f"{check.outcome:<9}  {check.name}: {check.seen}"
    if check.remedy and check.outcome in {CheckOutcome.FAILED, CheckOutcome.UNCHECKED}:
        yield f"           {check.remedy}"
    if check.assumes and check.outcome is CheckOutcome.FAILED:
        yield f"           assumption: Muster assumes that {check.assumes}; seen: {check.seen}"


def summary_lines(found: Verification) -> Iterator[str]:
    """How many checks ended how, and the names of those that failed."""
    counts = ", ".join(f"{found.count(outcome)} {outcome}" for outcome in CheckOutcome if found.count(outcome))
    yield f"{found.stack} in {found.region}: {counts}."
    names = dict.fromkeys(check.name for check in found.checks if check.outcome is CheckOutcome.FAILED)
    if names:
        yield f"Failed: {', '.join(names)}."
