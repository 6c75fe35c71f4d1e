"""The result of a run, written once to `control/{run}/result.json`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from muster.contract.document import StoredDocument, StoredPart, else_unknown
from muster.contract.run.attempt import Attempt
from muster.contract.run.ended_run import Verdict as Verdict  # noqa: PLC0414 - a part of this document
from muster.contract.run.finding import Finding
from muster.contract.run.model import ModelResult
from muster.contract.run.round_values import DEFAULT_UNIT, UNIT
from muster.contract.spec.recipe_reference import RunRecipe
from muster.contract.timestamps import Timestamp
from muster.contract.training.ranks import show_ranks


class ReplicaOutcome(StrEnum):
    """How a replica ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    NOT_LAUNCHED = "not-launched"
    PARKED = "parked"  # its seat was not wanted, or found no capacity
    UNKNOWN = "unknown"  # its record cannot be read


class ReplicaResult(StoredPart):
    """One replica in the settlement."""

    rank: int
    outcome: Annotated[ReplicaOutcome, else_unknown(ReplicaOutcome.UNKNOWN)]
    attempts: tuple[Attempt, ...] = ()
    artifacts: str | None = None
    checkpoint_uri: str | None = Field(
        default=None, description="what the replica's manifest names: the folder of the run's model"
    )
    checkpoint_platform: str | None = Field(
        default=None,
        description="where a checkpoint that stays with AWS was trained, and can be evaluated: `training-job` or "
        "`hyperpod`; none where its place does not say",
    )
    round: int | None = None
    checksum: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    problem: str | None = Field(default=None, description="why a value above is missing")
    finished_early: str | None = Field(
        default=None, description="how the replica finished, where others trained on; none where none did"
    )
    usd: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="what the instances of all its attempts cost, at on-demand prices; none where a type has no price",
    )
    instance_seconds: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="on a cluster: for how long its jobs held instances, all of them together; none for training jobs",
    )
    values: dict[str, JsonValue] = Field(default_factory=dict, description="of a sweep: the replica's own, by name")
    model: ModelResult | None = Field(default=None, description="of a sweep: the model that the replica leaves")
    committed_rounds: int | None = Field(
        default=None, ge=0, description="of a sweep: the last round that the replica has committed, as of the run's"
    )
    ended: str | None = Field(
        default=None, description="how its trainer ended, if it neither returned nor left the run itself"
    )


class Result(StoredDocument):
    """How a run ended."""

    run: str
    verdict: Verdict
    reason: str
    settled_at: Timestamp
    replicas: tuple[ReplicaResult, ...]
    recipe: RunRecipe | None = Field(default=None, description="the run's recipe; none where it has none")
    reruns: int = Field(ge=0, description="attempts after a failed one, all replicas together")
    committed_rounds: int | None = Field(
        default=None, ge=0, description="the last round committed in the rendezvous, those of the runs before included"
    )
    unit: str = Field(default=DEFAULT_UNIT, pattern=UNIT, description="what the trainers count: `samples`, `tokens`")
    samples: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="how many have counted in all rounds; none where not known"
    )
    samples_per_second: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="in the last rounds; none where not known"
    )
    egress_usd: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="dollars for what the rounds moved between places; none at one place",
    )
    parameters_identical: bool | None = Field(
        default=None,
        description="whether all replicas that succeeded, but for those that finished early, hold the same bytes; "
        "none when fewer than two report it",
    )
    model: ModelResult | None = Field(
        default=None, description="the model that the run leaves; none where no replica wrote one"
    )
    model_problem: str | None = Field(default=None, description="why a model that should be there is missing")
    findings: tuple[Finding, ...] = Field(
        default=(), description="rules of `watch` that were met, with their evidence, by round; the first ones of many"
    )

    def model_of(self, rank: int | None) -> ModelResult | None:
        """The model of the run; of a sweep that of `rank`."""
        if rank is None:
            return self.model
        return next((replica.model for replica in self.replicas if replica.rank == rank), None)

    def why_no_model(self, rank: int | None) -> str | None:
        """Why there is no model of the run or of `rank`, where that depends on whether it is a sweep."""
        own = [replica.rank for replica in self.replicas if replica.model is not None]
        is_sweep = any(replica.values for replica in self.replicas)
        if rank is not None and not is_sweep:
            return "its replicas train one model together: leave the rank out"
        if is_sweep and own and rank not in own:
            chosen = "each replica of the sweep has its own" if rank is None else f"replica {rank} has none"
            return f"{chosen}: choose one of the ranks {show_ranks(own)}"
        return None

    @property
    def usd(self) -> float | None:
        """What the run has cost: all instances, and what went between places; None where that of one is not known."""
        known = [replica.usd for replica in self.replicas if replica.usd is not None]
        return sum(known) + (self.egress_usd or 0.0) if len(known) == len(self.replicas) else None
