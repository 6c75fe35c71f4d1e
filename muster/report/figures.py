"""A figure of the page, and how amounts and times are written: what a status or a list has in common with the page."""

from __future__ import annotations

from muster.contract.document import Document


class Fact(Document):
    """A line of the summary."""

    label: str
    value: str
    note: str = ""


def dollars(usd: float) -> str:
    """`$1.41`, `$0.0023`."""
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"


def clock(seconds: float) -> str:
    """`4:10`, `1:02:05`."""
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours}:{minutes:02}:{int(seconds) % 60:02}" if hours else f"{minutes}:{int(seconds) % 60:02}"
