"""The run document: what a replica needs to know about its run. In the bucket, because it may have 200 KiB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, JsonValue, field_serializer, field_validator

from muster.contract.backend import Backend
from muster.contract.document import StoredDocument
from muster.contract.layout import s3_uri
from muster.contract.run.notices import NOTICES
from muster.contract.run.round_values import ROUND_MAX, Metrics
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.contract.spec.metric_sinks import MetricSinks
from muster.contract.spec.policies import OnEarlyFinish
from muster.contract.spec.watch_rules import Watch
from muster.contract.training.ranks import spans

if TYPE_CHECKING:
    # A replica reads the document, and has no use for the whole spec.
    from muster.contract.run.plan import Plan


class RunDocument(StoredDocument):
    """The run as its replicas see it, without tokens, records or anything else of the control plane."""

    run: str
    plan_digest: str
    replicas: int = Field(ge=1)
    trainer: str | None = None
    kwargs: dict[str, JsonValue]
    rendezvous_uri: str
    min_participants: int = Field(ge=1)
    quorum: float | None = Field(
        default=None, gt=0, le=1, description="the share of the expected replicas for which a round waits longer"
    )
    start: int | None = Field(
        default=None, ge=1, description="how many replicas the first round expects; none for all of them"
    )
    grace_seconds: float = Field(ge=0)
    timeout_seconds: float = Field(gt=0)
    snapshot_rounds: int = Field(default=10, ge=1)
    checkpoint_rounds: int = Field(default=1, ge=1)
    checkpoints: CheckpointTiers | None = Field(
        default=None, description="how often inner states are saved between rounds; none: never"
    )
    on_early_finish: OnEarlyFinish | None = Field(
        default=None, description="the run's rule; none where replicas do not report that they have finished"
    )
    watch: Watch | None = Field(default=None, description="the rules that watch the training; none: nothing does")
    root: str | None = Field(
        default=None,
        description="the first run of the lineage; none for a run that continues no other",
    )
    rounds_before: int = Field(default=0, ge=0, description="rounds that the runs before have committed")
    output_uri: str | None = Field(
        default=None, description="below this the run's model is written; none for a place in the rendezvous"
    )

    metrics: MetricSinks = Field(default_factory=MetricSinks, description="where metrics go beside the log")
    sweep_rank: int | None = Field(
        default=None,
        ge=0,
        description="in a sweep: the replica whose document this is; it trains by itself, as rank 0 of one",
    )

    reported_ranks: tuple[tuple[int, int], ...] = Field(
        default=(), description="those on clusters, or in a run with places all, as first and last of each span"
    )
    notices_uri: str | None = Field(default=None, description="where it is reported that a round misses one of them")

    @field_validator("metrics", mode="before")
    @classmethod
    def _known_sinks(cls, value: object) -> object:
        # A newer version may know more of them. Users' specs are closed, so here what is not known is left out.
        return MetricSinks.model_validate(value, extra="ignore") if isinstance(value, dict) else value

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _known_tiers(cls, value: object) -> object:
        # As the sinks of metrics.
        return CheckpointTiers.model_validate(value, extra="ignore") if isinstance(value, dict) else value

    @field_validator("watch", mode="before")
    @classmethod
    def _known_rules(cls, value: object) -> object:
        # As the sinks of metrics.
        return Watch.model_validate(value, extra="ignore") if isinstance(value, dict) else value

    @field_serializer("watch")
    def _chosen_rules(self, watch: Watch | None) -> dict[str, object] | None:
        # An image with an older version of Muster refuses a rule that it does not know.
        return None if watch is None else watch.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def every(cls, plan: Plan) -> dict[str, RunDocument]:
        """The documents of a plan by their keys: one for all replicas, or in a sweep one for each."""
        if not plan.spec.trains_apart:
            return {plan.layout.document: cls.of(plan)}
        return {plan.rank_layout(rank).document: cls._apart(plan, rank) for rank in range(plan.spec.replicas)}

    @classmethod
    def _apart(cls, plan: Plan, rank: int) -> RunDocument:
        trainer, kwargs = plan.spec.of_rank(rank).called
        return cls.of(plan).model_copy(
            update={
                "replicas": 1,
                "trainer": trainer,
                "kwargs": kwargs,
                "rendezvous_uri": s3_uri(plan.place.bucket, plan.rounds_layout(rank).rendezvous),
                "min_participants": 1,
                "output_uri": s3_uri(plan.place.bucket, plan.rank_layout(rank).results),
                "sweep_rank": rank,
                "rounds_before": plan.lineage.rounds_of(rank) if plan.lineage else 0,
            }
        )

    @classmethod
    def of(cls, plan: Plan) -> RunDocument:
        """The document that all replicas of a plan share."""
        trainer, kwargs = plan.spec.called
        reported = _spans_on_clusters(plan) if plan.spec.places is None else ((0, plan.spec.replicas - 1),)
        return cls(
            run=plan.run,
            plan_digest=plan.digest,
            replicas=plan.spec.replicas,
            trainer=trainer,
            kwargs=kwargs,
            rendezvous_uri=s3_uri(plan.place.bucket, plan.shared_layout.rendezvous),
            min_participants=plan.spec.min_participants,
            quorum=plan.spec.rendezvous.quorum,
            start=None if plan.spec.elastic is None else plan.spec.elastic.start,
            grace_seconds=plan.spec.rendezvous.grace_seconds,
            timeout_seconds=plan.spec.rendezvous.timeout_seconds,
            snapshot_rounds=plan.spec.rendezvous.snapshot_rounds,
            checkpoint_rounds=plan.spec.rendezvous.checkpoint_rounds,
            checkpoints=plan.spec.checkpoints,
            on_early_finish=plan.spec.on_early_finish,
            watch=plan.spec.watch,
            root=plan.lineage.root if plan.lineage else None,
            rounds_before=plan.lineage.rounds_before if plan.lineage else 0,
            output_uri=s3_uri(plan.place.bucket, plan.layout.output),
            metrics=plan.spec.metrics,
            reported_ranks=reported,
            notices_uri=s3_uri(plan.place.bucket, f"{NOTICES}{plan.run}/") if reported else None,
        )

    def member(self, rank: int) -> int:
        """The number of replica `rank` among those that train together."""
        return rank if self.sweep_rank is None else 0

    @property
    def rendezvous_name(self) -> str:
        """The run under whose name rendezvous and checkpoints are stored."""
        return self.root or self.run

    @property
    def results_uri(self) -> str:
        """Below this the run's model is written."""
        return self.output_uri or f"{self.rendezvous_uri}output/"


def _spans_on_clusters(plan: Plan) -> tuple[tuple[int, int], ...]:
    """The ranks of a plan whose jobs run on clusters, as first and last of each span."""
    spec = plan.spec
    if Backend.HYPERPOD not in {spec.backend, *(override.backend for override in spec.overrides.values())}:
        return ()
    return tuple(spans(rank for rank in range(spec.replicas) if spec.of_rank(rank).backend is Backend.HYPERPOD))


class Manifest(StoredDocument):
    """What a replica writes to `output/data/manifest.json`; SageMaker packs it into output.tar.gz.

    `checkpoint_s3_bucket` is the name by which existing resolvers find the checkpoint's URI: the folder of the run's
    model, which one replica writes for all.
    """

    checkpoint_s3_bucket: str
    round: int = Field(ge=0, le=ROUND_MAX)
    checksum: str = Field(max_length=64, description="SHA-256 of the parameters' bytes")
    metrics: Metrics = Field(default_factory=dict)
    ended: str = Field(
        default="",
        max_length=200,
        pattern=r"^[\x20-\x7e]*$",
        description="how the trainer ended, in words, if it neither returned nor left the run itself",
    )
