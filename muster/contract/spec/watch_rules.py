"""The rules that watch the training of a run: what is reported, and what is done about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from muster.contract.document import Document
from muster.contract.spec.metric_sinks import MetricName


class Rule(StrEnum):
    """The rules, by their names in a spec."""

    HANG = "hang"
    SLOW = "slow"
    LOSS = "loss"
    DIVERGENCE = "divergence"
    NO_ROUND = "no_round"


class Hang(Document):
    """A process of a replica makes no inner step."""

    after_seconds: float = Field(
        default=1_800.0,
        gt=0,
        le=604_800,
        description="time without a step after the first one; longer than the longest evaluation between two steps",
    )
    then: Literal["ignore", "report", "restart", "stop"] = Field(default="report", description="what follows")


class Slow(Document):
    """A replica takes longer for a sample than the others, or one of its processes works longer than its peers."""

    factor: float = Field(default=3.0, gt=1, le=1_000, description="seconds, as a multiple of the others' median")
    rounds: int = Field(default=5, ge=1, le=16, description="in so many rounds, one after the other")
    then: Literal["ignore", "report", "restart", "stop"] = Field(default="report", description="what follows")


class Loss(Document):
    """The loss of a replica is NaN or infinite, or jumps."""

    metric: MetricName = Field(default="loss", description="the metric that the trainer logs as its loss")
    factor: float = Field(
        default=3.0,
        gt=1,
        le=1_000_000,
        description="a jump: so many times the median of the last rounds, of all replicas",
    )
    then: Literal["ignore", "report", "exclude", "restart", "stop"] = Field(
        default="report", description="what follows"
    )


class Divergence(Document):
    """The updates of one replica point away from those of the others, or are far larger."""

    cosine: float = Field(
        default=0.0,
        gt=-1,
        lt=1,
        description="away: its `update_cosine` is below this, while that of the others with each other is not",
    )
    factor: float = Field(
        default=5.0, ge=2, le=1_000_000, description="larger: the norm is so many times the others' median"
    )
    rounds: int = Field(default=5, ge=1, le=16, description="in so many rounds, one after the other")
    then: Literal["ignore", "report", "exclude", "restart", "stop"] = Field(
        default="report", description="what follows"
    )


class NoRound(Document):
    """The run commits no round."""

    after_seconds: float = Field(
        default=2_700.0, gt=0, le=604_800, description="time since the last round, or since the start of the replica"
    )
    then: Literal["ignore", "report", "stop"] = Field(default="report", description="what follows")


class Watch(Document):
    """The rules that watch the training."""

    hang: Hang = Field(default_factory=Hang, description="a process makes no step")
    slow: Slow = Field(default_factory=Slow, description="a replica is slower than the others")
    loss: Loss = Field(default_factory=Loss, description="the loss is NaN or infinite, or jumps")
    divergence: Divergence = Field(
        default_factory=Divergence, description="a replica's updates diverge from those of the others"
    )
    no_round: NoRound = Field(default_factory=NoRound, description="no round is committed")
    max_restarts: int = Field(
        default=3, ge=0, le=100, description="reruns of a replica because of `restart`, all rules together"
    )

    @property
    def excluding(self) -> tuple[Rule, ...]:
        """The rules that make a round without the replica that meets them."""
        return tuple(rule for rule in Rule if self.then(rule) == "exclude")

    def then(self, rule: Rule) -> str:
        """What follows when `rule` is met."""
        rules: dict[Rule, Hang | Slow | Loss | Divergence | NoRound] = {
            Rule.HANG: self.hang,
            Rule.SLOW: self.slow,
            Rule.LOSS: self.loss,
            Rule.DIVERGENCE: self.divergence,
            Rule.NO_ROUND: self.no_round,
        }
        return rules[rule].then
