"""What a verification found: its checks, each with an outcome and one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from pydantic import Field

from muster.contract.document import Document
from muster.contract.timestamps import Timestamp


class Outcome(StrEnum):
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
    outcome: Outcome
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

    def count(self, outcome: Outcome) -> int:
        """How many checks ended like this."""
        return sum(check.outcome is outcome for check in self.checks)

    @property
    def passed(self) -> bool:
        """Whether no check has failed."""
        return self.count(Outcome.FAILED) == 0


def ok(name: str, seen: str, *, assumes: str = "") -> Check:
    """A check that holds."""
    return Check(name=name, outcome=Outcome.OK, seen=seen, assumes=assumes)


def failed(name: str, seen: str, remedy: str = "", *, assumes: str = "") -> Check:
    """A check that does not hold."""
    return Check(name=name, outcome=Outcome.FAILED, seen=seen, remedy=remedy, assumes=assumes)


def unchecked(name: str, reason: str, remedy: str = "", *, assumes: str = "") -> Check:
    """A check that could not be made."""
    return Check(name=name, outcome=Outcome.UNCHECKED, seen=reason, remedy=remedy, assumes=assumes)


def info(name: str, seen: str, remedy: str = "", *, assumes: str = "") -> Check:
    """Something to know, without a judgement."""
    return Check(name=name, outcome=Outcome.INFO, seen=seen, remedy=remedy, assumes=assumes)


def judged(name: str, problems: Iterable[str], seen: str, remedy: str = "", *, assumes: str = "") -> Check:
    """Failed with all `problems` in one sentence, or ok with what was `seen`."""
    found = "; ".join(problems)
    return failed(name, f"{found}.", remedy, assumes=assumes) if found else ok(name, seen, assumes=assumes)


def check_lines(check: Check) -> Iterator[str]:
    """A check for people: its outcome, its name and what was seen; what to do; an assumption that does not hold."""
    yield f"{check.outcome:<9}  {check.name}: {check.seen}"
    if check.outcome in {Outcome.OK, Outcome.INFO}:
        return
    if check.remedy:
        yield f"           {check.remedy}"
    if check.assumes:
        yield f"           assumption: Muster assumes that {check.assumes}; seen: {check.seen}"


def summary_lines(found: Verification) -> Iterator[str]:
    """How many checks ended how, and the names of those that failed."""
    counts = ", ".join(f"{found.count(outcome)} {outcome}" for outcome in Outcome if found.count(outcome))
    yield f"{found.stack} in {found.region}: {counts}."
    names = dict.fromkeys(check.name for check in found.checks if check.outcome is Outcome.FAILED)
    if names:
        yield f"Failed: {', '.join(names)}."
