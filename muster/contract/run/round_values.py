"""What several documents say about rounds, apart from the commit: not every reader of a number needs its models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

ROUND_MAX = 99_999_999  # eight digits in a key

UNIT = r"^[a-z]{1,20}$"
"""What weights count, such as `samples` or `tokens`."""
DEFAULT_UNIT = "samples"

WHOLE_CODECS = "fp32|bf16|fp16|int8|int4"
"""The codecs that keep every value, as a pattern has them."""

METRICS_MAX = 32
"""How many metrics a contribution carries."""

UPDATE_COSINE, UPDATE_NORM, CODEC_ERROR, RESIDUAL_SHARE = (
    "update_cosine",
    "update_norm",
    "codec_error",
    "residual_share",
)
UPDATE_METRICS = (UPDATE_COSINE, UPDATE_NORM, CODEC_ERROR, RESIDUAL_SHARE)
"""What Muster logs of a replica's pseudo-gradient in every round, the most telling first."""

Metrics = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=48)], Annotated[float, Field(allow_inf_nan=False)]],
    Field(max_length=METRICS_MAX),
]
