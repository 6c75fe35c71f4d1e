"""What a plan and a status say of a run's time before it has passed: a forecast. An option makes it."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from muster.contract.document import Document
from muster.contract.run.round_values import WHOLE_CODECS

_CODEC = rf"^({WHOLE_CODECS}|topk2-(16|32|64|128|256|512))$"


class ExchangeSettings(Document):
    """When a run exchanges what: those settings of its `Algorithm` on which its time depends."""

    sync_every: int = Field(default=1, ge=1, le=10_000_000)
    codec: str = Field(default="fp32", pattern=_CODEC)
    far_codec: str | None = Field(
        default=None, pattern=rf"^({WHOLE_CODECS})?$", description="between places; null: `codec`"
    )
    fragments: int = Field(default=1, ge=1)
    delay: int = Field(default=0, ge=0)
    eager: bool = False

    @field_validator("far_codec")
    @classmethod
    def _named(cls, value: str | None) -> str | None:
        # An algorithm's setting is empty where it is `codec`.
        return value or None

    @field_validator("fragments", "delay", "eager")
    @classmethod
    def _fits(cls, value: int, info: ValidationInfo) -> int:
        known: dict[str, int] = {"sync_every": 1, "fragments": 1, "delay": 0, **info.data, str(info.field_name): value}
        steps, rest = divmod(known["sync_every"], known["fragments"])
        if rest or known["delay"] >= steps:
            message = f"it does not fit into sync_every {known['sync_every']} with {known['fragments']} fragments"
            raise ValueError(message)
        if known.get("eager") and (known["fragments"], known["delay"]) != (1, 0):
            message = "it cannot be combined with fragments or delay"
            raise ValueError(message)
        return value


class Phase(Document):
    """From one exchange to the next, with these settings."""

    settings: ExchangeSettings
    compute_seconds: float = Field(description="for which a replica trains")
    exchange_seconds: float = Field(description="from its contribution to the mean")
    blocked_seconds: float = Field(description="for which the training waits for exchanges")
    utilisation: float = Field(description="the share of the time in which a replica trains")


class Forecast(Document):
    """How a run's time is shared out, by the size of its model, its links and its settings."""

    parameters: int
    replicas: int
    step_seconds: float = Field(description="of an inner step")
    step_samples: float | None = Field(default=None, description="of a replica; null where it is not known")
    phase: Phase
    sent_bytes: float = Field(description="by a replica to the bucket where it trains, in an exchange")
    received_bytes: float
    crossed_bytes: float = Field(default=0, description="between places, all together")
    usd_per_million: float | None = Field(default=None, description="for a million samples, instances alone")
    measured_utilisation: float | None = Field(default=None, description="of a run, so far")
    target: float | None = Field(default=None, description="the utilisation that was asked for")
    proposal: Phase | None = Field(default=None, description="that reaches the target; null: none is known")
    assumed: tuple[str, ...] = Field(default=(), description="what was not known, in words")
