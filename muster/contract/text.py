"""Text that people read."""

from __future__ import annotations

from collections.abc import Sequence


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def some_of(items: Sequence[str], most: int, joint: str = ", ") -> str:
    """At most so many of the items, and how many others there are: `a, b and 3 more`."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return joint.join(items[:most]) + more
