"""Rows as columns. The inverse is JavaScript: tests/page reads the rows back from a page."""

from __future__ import annotations

import json
from typing import Any

from muster.report.packed_rows import Texts, packed_replicas


def packed(*replicas: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    texts = Texts()
    columns = packed_replicas(replicas, texts)
    assert columns["rows"] == len(replicas)
    return columns["columns"], texts.all


def test_columns_say_each_text_once_and_times_as_differences() -> None:
    columns, texts = packed(
        {
            "rank": 0,
            "state": "Failed",
            "attempts": [{"attempt": 1, "job": "m-r0-a1", "ended_at": "2026-05-04T03:00:01.500Z"}],
        },
        {
            "rank": 1,
            "state": "succeeded",
            "attempts": [
                {"attempt": 1, "job": "m-r1-a1", "ended_at": "2026-05-04T03:00:02.000Z"},
                {"attempt": 2, "job": "m-r1-a2", "ended_at": None},
            ],
            "artifacts": "s3://b/m-r1-a2/model.tar.gz",
        },
    )
    assert columns["rank"] == {"values": [0, 1]}
    assert columns["state"] == {"texts": [0, 1]}
    assert texts == ["Failed", "succeeded", "s3://b/m-r{rank}-a{attempt}/model.tar.gz"]
    assert columns["artifacts"] == {"texts": [None, 2]}
    attempts = columns["attempts"]
    assert attempts["lists"] == [1, 2]
    inner = attempts["items"]["columns"]
    assert inner["job"] == {"all": "m-r{rank}-a{attempt}"}
    assert inner["ended_at"] == {"times": [1777863601500, 500, None]}


def test_what_has_another_spelling_stays_as_it_is() -> None:
    evil = "m{rank}-r0-a1"
    columns, texts = packed(
        {"rank": 0, "attempts": [{"attempt": 1, "job": evil, "ended_at": "yesterday"}], "problem": "-r0-a1"},
        {"rank": 1, "attempts": [], "extra": {"a": [1, None]}},
    )
    inner = columns["attempts"]["items"]["columns"]
    assert inner["job"] == {"all": evil}
    assert inner["ended_at"] == {"all": "yesterday"}
    assert columns["problem"] == {"texts": [texts.index("-r0-a1"), None]}
    assert columns["extra"] == {"values": [None, {"a": [1, None]}]}
    assert json.loads(json.dumps(columns)) == columns


def test_no_replicas_are_no_columns() -> None:
    assert packed() == ({}, [])
