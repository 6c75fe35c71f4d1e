"""Quality per byte: the loss of the GPT example against data parallelism, by what its replicas send."""

from __future__ import annotations

from bench.quality.rows import run

__all__ = ["run"]
