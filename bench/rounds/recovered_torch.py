"""The trainer of the recovery benchmark, with imports that take as long as PyTorch's."""

from __future__ import annotations

import torch  # noqa: F401 - for the time that this takes

from bench.rounds.recovered import train

__all__ = ["train"]
