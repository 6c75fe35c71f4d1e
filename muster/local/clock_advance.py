"""How far a test moves the clock by which lifecycle rules act."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Advance(BaseModel):
    """One move of the clock; it never goes back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float = Field(gt=0)
