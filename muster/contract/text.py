"""Text that people read."""

from __future__ import annotations


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
