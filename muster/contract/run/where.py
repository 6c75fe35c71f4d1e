"""Where an attempt runs, and why there."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from muster.contract.document import StoredPart
from muster.contract.spec.places import HOME
from muster.contract.timestamps import Timestamp


class Where(StoredPart):
    """The place of an attempt, and the rung of the ladder from which it was launched."""

    place: str = HOME
    rung: int | None = Field(default=None, ge=0, description="of the spec's ladder; none for fixed shares")
    spot: bool = False
    training_plan: str | None = None
    why: str = Field(default="", description="why it runs there, in a clause")
    launches: bool = Field(default=True, description="whether there was a rung to launch it on")
    silent_since: Timestamp | None = Field(
        default=None, description="when its place did not answer, so that the attempt was given up or not stopped"
    )
    may_run: bool = Field(default=False, description="whether its job may still run in a place that did not answer")

    @property
    def is_home(self) -> bool:
        """Whether it is the stack's own region."""
        return self.place == HOME

    @property
    def shown(self) -> str:
        """`oregon, spot`."""
        return f"{self.place}, spot" if self.spot else self.place

    @property
    def words(self) -> str:
        """`in oregon, spot (the first rung)`."""
        return f"in {self.shown} ({self.why})" if self.why else f"in {self.shown}"

    def after_silence(self, at: Timestamp) -> Self:
        """Of an attempt whose job may still run, because its place did not answer at `at`."""
        return self.model_copy(update={"silent_since": self.silent_since or at, "may_run": True})
