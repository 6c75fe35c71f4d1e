"""One figure of the page. By itself, because a status has words in common with the page, and no other part of it."""

from __future__ import annotations

from muster.contract.document import Document


class Fact(Document):
    """A line of the summary."""

    label: str
    value: str
    note: str = ""
