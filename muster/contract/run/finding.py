"""A finding: a rule that watches the training was met. Replicas store it beside the commits, which clients list."""

from __future__ import annotations

import re
from zlib import crc32

from pydantic import Field, field_validator

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.names import REPLICAS_MAX, RUN_MAX
from muster.contract.run.round_values import ROUND_MAX
from muster.contract.spec.watch_rules import Rule

FINDING_BYTES_MAX = 4_096
"""The largest finding that the control plane and clients read."""
FINDINGS_MAX = 20
"""How many findings one process writes for each rule."""
FINDINGS_READ_MAX = 100
"""How many findings of a run are read."""
TEXT_MAX = 800
_NAME = re.compile(r"finding-[0-9]{10}-[a-z_]{1,16}-[0-9-]{1,32}\.json")


class Finding(StoredPart):
    """What a replica found, and what the run's spec says for it."""

    rule: Rule | None = Field(description="the rule that was met; none for one of another version of Muster")
    then: str = Field(max_length=16, pattern=r"^[a-z]+$", description="what follows by the spec")
    rank: int = Field(ge=0, lt=REPLICAS_MAX, description="the replica that has found it")
    attempt: int = Field(ge=1)
    round: int = Field(ge=0, le=ROUND_MAX, description="the last round that the replica had seen")
    text: str = Field(max_length=TEXT_MAX, pattern=r"^[\x20-\x7e]*$", description="the evidence, in words")

    @field_validator("rule", mode="before")
    @classmethod
    def _known_rule(cls, value: object) -> object:
        return None if isinstance(value, str) and value not in set(Rule) else value

    @property
    def words(self) -> str:
        """`watch.hang: replica 2 attempt 1, after round 31: process 3 of 4 has made no step for 612 s … (restart)`."""
        rule = "a rule of another version of Muster" if self.rule is None else f"watch.{self.rule}"
        where = f"replica {self.rank} attempt {self.attempt}, after round {self.round}"
        return f"{rule}: {where}: {self.text} ({self.then})"


class FindingDocument(StoredDocument):
    """A finding as a replica stores it."""

    run: str = Field(max_length=RUN_MAX, description="the run of the lineage")
    finding: Finding


def findings_of(run: str) -> str:
    """What the names of a run's findings begin with: below `RunLayout.commits` lie those of its whole lineage."""
    return f"finding-{crc32(run.encode()):010d}-"


def is_finding(name: str) -> bool:
    """Whether an object with this name below `RunLayout.commits` is a finding."""
    return _NAME.fullmatch(name) is not None
