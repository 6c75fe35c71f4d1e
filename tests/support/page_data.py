"""The data of a page as it was before it was packed: the inverse of `muster.report.packed_rows` in Python."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from muster.contract import timestamps


def data_in(page: str) -> dict[str, Any]:
    """The data of a page, an HTML file."""
    [block] = re.findall(r'id="data">(.*?)</script>', page)
    return unpacked(json.loads(block))


def unpacked(data: dict[str, Any]) -> dict[str, Any]:
    """The data with its replicas as a list of mappings."""
    texts = data["texts"]
    replicas = list(_rows(data["replicas"], texts))
    for replica in replicas:
        attempts = replica.get("attempts", [])
        for attempt in attempts:
            attempt["job"] = _named(attempt["job"], replica["rank"], attempt["attempt"])
        if "artifacts" in replica and attempts:
            replica["artifacts"] = _named(replica["artifacts"], replica["rank"], attempts[-1]["attempt"])
    return {**{name: value for name, value in data.items() if name != "texts"}, "replicas": replicas}


def _named(text: str, rank: int, attempt: int) -> str:
    return text.replace("{rank}", str(rank)).replace("{attempt}", str(attempt))


def _rows(packed: Mapping[str, Any], texts: list[str]) -> Iterator[dict[str, Any]]:
    columns = {name: list(_values(column, packed["rows"], texts)) for name, column in packed["columns"].items()}
    for index in range(packed["rows"]):
        yield {name: values[index] for name, values in columns.items() if values[index] is not None}


def _values(column: Mapping[str, Any], count: int, texts: list[str]) -> Iterator[Any]:
    if "all" in column:
        yield from [column["all"]] * count
    elif "texts" in column:
        yield from (None if index is None else texts[index] for index in column["texts"])
    elif "times" in column:
        at = 0
        for difference in column["times"]:
            at += difference or 0
            yield None if difference is None else timestamps.from_epoch_milliseconds(at)
    elif "lists" in column:
        items = _values(column["items"], sum(filter(None, column["lists"])), texts)
        yield from (None if length is None else list(islice(items, length)) for length in column["lists"])
    elif "rows" in column:
        yield from _rows(column, texts)
    else:
        yield from column["values"]
