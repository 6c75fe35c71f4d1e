"""A 403 that means that there is no object, while peers write objects."""

from __future__ import annotations

from typing import Any, cast

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import MemoryStore, S3Store

from muster.replica.store.missing_objects import MissingObjects

KEY = "rendezvous/run/commits/00000001.json"


def denied() -> PermissionDeniedError:
    return PermissionDeniedError("403")


def test_an_object_that_a_peer_writes_between_the_request_and_the_listing_is_found() -> None:
    store = MemoryStore()
    answers: list[Any] = [denied(), b"commit"]

    def request() -> bytes:
        obstore.put(store, KEY, b"commit")
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("bytes", answer)

    assert MissingObjects(cast("S3Store", store)).found(KEY, request) == b"commit"
    assert answers == []


def test_an_object_that_stays_denied_is_denied_and_one_that_is_not_listed_is_missing() -> None:
    store = MemoryStore()

    def request() -> bytes:
        raise denied()

    with pytest.raises(FileNotFoundError):
        MissingObjects(cast("S3Store", store)).found(KEY, request)
    obstore.put(store, KEY, b"commit")
    with pytest.raises(PermissionDeniedError):
        MissingObjects(cast("S3Store", store)).found(KEY, request)
