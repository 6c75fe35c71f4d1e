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


def bytes_text(count: int) -> str:
    """`532 bytes`, `1.2 MB`, `13.5 GB`: with decimal prefixes, as S3 is billed."""
    if count < 1_000:
        return f"{count} bytes"
    size, units = count / 1_000, ["kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1_000, units[1:]
    return f"{size:.3g} {units[0]}"


def rate_text(rate: float, unit: str) -> str:
    """`12,300 tokens/s`, `0.25 samples/s`: three significant digits, and whole numbers in full."""
    return f"{rate_number(rate)} {unit}/s"


def rate_number(rate: float) -> str:
    """`12,300`, `4.5`."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def count_text(count: float, unit: str) -> str:
    """`1.23 billion tokens`, `12,300 samples`."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {word} {unit}"
    return f"{count:,.0f} {unit}"


def duration(seconds: float) -> str:
    """`3 d 4 h`, `2 h 5 min`, `1 min 7 s` or `7.5 s`."""
    if seconds < 59.95:
        return f"{max(seconds, 0):.3g} s"
    units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)]
    rest = max(60, int(seconds))
    parts: list[tuple[int, str]] = []
    for name, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)
