"""Many rows of the same kind as columns, for a page: each text once, times as differences. Pure.

A list of mappings becomes a mapping of columns. Missing values and nulls are the same. `assets/data.js` has the
inverse. A column is one of:

| form | of what |
|---|---|
| `{"all": value}` | the same value in every row |
| `{"texts": [index, …]}` | texts; the indices are those of the page's table of texts |
| `{"times": [milliseconds, …]}` | times in the spelling of `timestamps.text`, as differences to the one before |
| `{"lists": [length, …], "items": column}` | lists; `items` are those of all rows, one after the other |
| `{"rows": count, "columns": {name: column, …}}` | mappings |
| `{"values": [value, …]}` | anything else |

`{rank}` and `{attempt}` in a text stand for those of the row in which it is: each job has a name of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.contract import timestamps

Column = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES = frozenset({"at", "launched_at", "ended_at"})


class Texts:
    """The table of a page's texts."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}

    def index(self, text: str) -> int:
        """The index of `text`, which is added if it is not there."""
        return self._index.setdefault(text, len(self._index))

    @property
    def all(self) -> list[str]:
        """The texts by index."""
        return list(self._index)


def packed_replicas(replicas: Sequence[Mapping[str, Any]], texts: Texts) -> Column:
    """The replicas of a page as columns. A text that contains the name of an attempt's job has placeholders for it."""
    return _rows([_without_names(replica) for replica in replicas], texts)


def _without_names(replica: Mapping[str, Any]) -> dict[str, Any]:
    attempts = [
        {**attempt, "job": _place_held(attempt["job"], replica["rank"], attempt["attempt"])}
        for attempt in replica.get("attempts", ())
    ]
    found = {**replica, "attempts": attempts}
    if replica.get("artifacts") and attempts:
        found["artifacts"] = _place_held(replica["artifacts"], replica["rank"], attempts[-1]["attempt"])
    return found


def _place_held(text: str, rank: int, attempt: int) -> str:
    # A text that has placeholders already could not be restored.
    return text if "{" in text else text.replace(f"-r{rank}-a{attempt}", "-r{rank}-a{attempt}")


def _rows(rows: Sequence[Mapping[str, Any]], texts: Texts) -> Column:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {
        "rows": len(rows),
        "columns": {name: _column(name, [row.get(name) for row in rows], texts) for name in names},
    }


def _column(name: str, values: Sequence[Any], texts: Texts) -> Column:
    known = [value for value in values if value is not None]
    kinds = set(map(type, known))
    if kinds <= {str, int, float, bool} and len(known) == len(values) and len(set(map(repr, known))) == 1:
        return {"all": known[0]}
    if kinds == {str}:
        times = _times(values) if name in _TIMES else None
        if times is not None:
            return {"times": times}
        return {"texts": [None if value is None else texts.index(value) for value in values]}
    if kinds <= {list, tuple} and kinds:
        items = [item for value in known for item in value]
        return {
            "lists": [None if value is None else len(value) for value in values],
            "items": _column(name, items, texts),
        }
    if kinds == {dict} and len(known) == len(values):
        return _rows(known, texts)
    return {"values": list(values)}


def _times(values: Sequence[str | None]) -> list[int | None] | None:
    """The differences of the times; None if one of them has another spelling."""
    found: list[int | None] = []
    before = 0
    for value in values:
        if value is None:
            found.append(None)
            continue
        try:
            at = timestamps.parse(value)
            milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, TypeError):
            return None
        if timestamps.from_epoch_milliseconds(milliseconds) != value:
            return None
        found.append(milliseconds - before)
        before = milliseconds
    return found
