"""The plan: the spec with every default, limit and place resolved. Written once, never changed."""

from __future__ import annotations

from pydantic import Field, ValidatorFunctionWrapHandler, field_validator

from muster.contract.document import StoredDocument, StoredPart, digest
from muster.contract.layout import RunLayout
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_fields import STORED
from muster.contract.timestamps import Timestamp


class Lineage(StoredDocument):
    """The runs before a continuation, whose rendezvous and checkpoints it shares."""

    parent: str = Field(description="the run that this run continues")
    root: str = Field(description="the first run of the lineage: rendezvous and checkpoints are stored under its name")
    generation: int = Field(ge=1, description="how many runs of the lineage came before")
    attempts_before: int = Field(
        ge=0,
        description="the highest attempt number in all earlier runs; higher claims fence their processes",
    )
    rounds_before: int = Field(
        default=0, ge=0, description="rounds that earlier runs committed, as far as is known: they must still be stored"
    )
    rounds_by_rank: tuple[int, ...] = Field(default=(), description="the same of each replica of a sweep")

    def rounds_of(self, rank: int) -> int:
        """The rounds that earlier runs have committed where `rank` trains."""
        return self.rounds_by_rank[rank] if self.rounds_by_rank else self.rounds_before


class Place(StoredPart):
    """The stack's bucket, role and names, which its jobs use."""

    bucket: str
    role_arn: str
    job_prefix: str
    package_uri: str | None = Field(default=None, description="Muster's replica package, for specs with source code")


class Plan(StoredDocument):
    """Everything that determines what a run does. Its digest is a tag of every job of the run.

    A run can outlive the version of Muster that planned it. So the digest is computed once and stored: a later version,
    with other defaults, would compute another one. And the spec, which was accepted, is not held to newer rules.
    """

    run: str
    execution_arn: str
    created_at: Timestamp
    place: Place
    spec: Spec
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    lineage: Lineage | None = Field(default=None, description="of a continuation")

    @classmethod
    def make(
        cls,
        run: str,
        execution_arn: str,
        created_at: Timestamp,
        place: Place,
        spec: Spec,
        *,
        lineage: Lineage | None = None,
    ) -> Plan:
        """The plan of a spec, with every default: the same execution and spec give the same bytes."""
        resolved = spec.resolved()
        parts = [run, execution_arn, place.model_dump(mode="json"), resolved.model_dump(mode="json")]
        if lineage is not None:
            parts.append(lineage.model_dump(mode="json"))
        return cls(
            run=run,
            execution_arn=execution_arn,
            created_at=created_at,
            place=place,
            spec=resolved,
            digest=digest(parts),
            lineage=lineage,
        )

    @field_validator("spec", mode="wrap")
    @classmethod
    def _accepted(cls, value: object, validated: ValidatorFunctionWrapHandler) -> object:
        if not isinstance(value, dict):
            return validated(value)
        # A newer version may have added fields to the spec. Users' specs are closed, so here they are left out.
        return Spec.model_validate(value, extra="ignore", context=STORED)

    @property
    def region(self) -> str:
        """The AWS region of the stack: the execution, its jobs and the bucket are all in it."""
        return self.execution_arn.split(":")[3]

    @property
    def layout(self) -> RunLayout:
        """The keys of the run's objects."""
        return RunLayout(self.run)

    @property
    def shared_layout(self) -> RunLayout:
        """The keys of rendezvous and checkpoints, which all runs of a lineage share: those of its first run."""
        return RunLayout(self.lineage.root) if self.lineage else self.layout

    def rounds_layout(self, rank: int) -> RunLayout:
        """The keys of the rendezvous in which `rank` trains: the run's, or in a sweep its own."""
        return self.shared_layout.of_rank(rank) if self.spec.trains_apart else self.shared_layout

    def rank_layout(self, rank: int) -> RunLayout:
        """The keys of the run document and the model of `rank`: the run's, or in a sweep its own."""
        return self.layout.of_rank(rank) if self.spec.trains_apart else self.layout

    def claim_number(self, attempt: int) -> int:
        """The number with which an attempt claims its rank: attempts are numbered through all runs of a lineage."""
        return attempt + (self.lineage.attempts_before if self.lineage else 0)
