"""The rare transitions that an exploration must reach: a schedule in which nothing rare happens shows nothing."""

from __future__ import annotations

from collections import Counter

# By what the processes log.
LOGGED = (
    "began",
    "committed",
    "contribution-was-there",
    "damaged-shard",
    "damaged-snapshot",
    "excluded",
    "fell-forward",
    "joined",
    "left-out",
    "not-swept",
    "options",
    "seated",
    "snapshot",
    "swept",
    "take-over",
    "void",
)
FAULTS = (
    "fault: 503",
    "fault: 409",
    "fault: answer lost",
    "fault: late",
    "fault: broken body",
    "fault: damaged",
    "a create meets an object (412)",
    "a missing object is hidden (403)",
    "an object appears after a 403",
    "damaged in transit: contributions",
    "damaged in transit: reduced",
    "damaged in transit: snapshots",
    "damaged in the bucket: contributions",
    "damaged in the bucket: reduced",
    "damaged in the bucket: snapshots",
    "late effect: claims",
    "late effect: commits",
    "late effect: contributions",
    "late effect: reduced",
    "late effect: snapshots",
    "late effect: manifests",
    "late effect finds an object",
    "late effect of a process that has ended",
    "late effect after a successor took the rank",
    "an amendment is created",
    "a round is void",
    "a bit of a state is flipped",
    "a missing rank of a cluster is reported",
    "a round is committed without an expected rank",
    "a round is committed without a rank that has finished",
    "killed",
    "stalled",
    "told to stop",
    "cut off from S3",
    "rerun after a failure",
)
DILOCO = (
    "a phase is given by a process that ends",
    "a phase is resumed",
    "logged: given-early",
    "logged: left",
    "logged: phase-resumed",
)
GROUPS = (
    "one process of several is killed",
    "a contribution's parts stay without its own object",
)
ENDS = (
    "ended: well",
    "ended: fenced",
    "ended: stopped",
    "ended: S3 unavailable",
    "ended: diverged",
    "ended: no quorum in time",
    "ended: no quorum possible",
    "ended: damaged",
    "ended: other bits",
)
TORCHFT = (
    "torchft: began",
    "torchft: joined after the first round",
    "torchft: left out",
    "late effect: torchft",
    "logged: replayed",
)
# What a thousand schedules reach.
COMMON = (
    "logged: contribution-was-there",
    "logged: damaged-shard",
    "logged: damaged-snapshot",
    "logged: excluded",
    "logged: fell-forward",
    "logged: left-out",
    "logged: not-swept",
    "logged: swept",
    "logged: take-over",
    "an object appears after a 403",
    "a round is committed without an expected rank",
    "late effect of a process that has ended",
    "late effect finds an object",
    "rerun after a failure",
    "one process of several is killed",
    "ended: fenced",
    "ended: S3 unavailable",
    "ended: no quorum in time",
)
REACHED = (*(f"logged: {name}" for name in LOGGED), *FAULTS, *DILOCO, *GROUPS, *ENDS, *TORCHFT)


def unreached(seen: Counter[str], expected: tuple[str, ...] = REACHED) -> list[str]:
    """The transitions that no schedule has reached."""
    return [name for name in expected if not seen[name]]


def table(seen: Counter[str], expected: tuple[str, ...] = REACHED) -> str:
    """How often each was reached, line by line."""
    return "\n".join(f"  {seen[name]:>12,}  {name}" for name in expected)
