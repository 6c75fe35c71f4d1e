"""Claims: one holder per rank, whatever order processes start in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.contract.run.commit import Finish
from muster.replica.errors import FencedError, RendezvousError
from muster.replica.rounds.claims import (
    Claim,
    Holder,
    check_claim,
    claim_rank,
    give_up_claim,
    newer_holder,
    renew_claim,
)
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import ObjectExistsError, Store
from muster.replica.wire import keys
from tests.support.peers import RUN, Faults, FaultyStore


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path)


def test_incarnations_count_within_an_attempt_and_epochs_over_all(store: Store) -> None:
    claims = [claim_rank(store, RUN, 3, attempt) for attempt in (1, 1, 2, 2, 5)]
    assert [(claim.attempt, claim.incarnation, claim.epoch) for claim in claims] == [
        (1, 1, 1),
        (1, 2, 2),
        (2, 1, 3),
        (2, 2, 4),
        (5, 1, 5),
    ]
    check_claim(store, claims[-1])
    for claim in claims[:-1]:
        with pytest.raises(FencedError, match="superseded"):
            check_claim(store, claim)


def test_of_many_that_claim_at_once_one_holds_the_rank(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda _: claim_rank(store, RUN, 0, 1), range(8)))
    assert sorted(claim.epoch for claim in claims) == list(range(1, 9))
    assert sorted(claim.incarnation for claim in claims) == list(range(1, 9))


def test_a_known_epoch_saves_reading_the_row_from_its_beginning(tmp_path: Path) -> None:
    for _ in range(4):
        claim_rank(LocalStore(tmp_path), RUN, 0, 1)
    read: list[str] = []
    claim = claim_rank(FaultyStore(LocalStore(tmp_path), Faults(before_read=read.append)), RUN, 0, 1, known_epoch=4)
    assert (claim.epoch, claim.incarnation) == (5, 5)
    assert keys.claim(0, 1) not in read


def test_a_claim_is_renewed_by_its_holder_alone(store: Store) -> None:
    first = claim_rank(store, RUN, 0, 1)
    renewed = renew_claim(store, RUN, first)
    assert renewed == Claim(0, 1, 1, 2)
    claim_rank(store, RUN, 0, 2)
    with pytest.raises(FencedError):
        renew_claim(store, RUN, renewed)


@pytest.mark.parametrize("renew", [False, True])
def test_a_claim_whose_answer_was_lost_is_recognised(tmp_path: Path, renew: bool) -> None:
    lost = iter([True])

    def lose_answer(key: str) -> None:
        if next(lost, False):
            raise ObjectExistsError(key)

    inner = LocalStore(tmp_path)
    store = FaultyStore(inner, Faults(after_create=lose_answer))
    if renew:
        held = claim_rank(inner, RUN, 0, 1)
        assert renew_claim(store, RUN, held).epoch == 2
    else:
        assert claim_rank(store, RUN, 0, 1) == Claim(0, 1, 1, 1)


def test_a_damaged_claim_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create(keys.claim(0, 1), b"{")
    with pytest.raises(RendezvousError, match=r"claims/00000/000001\.json"):
        claim_rank(store, RUN, 0, 1)


def finish_of(rank: int) -> Finish:
    return Finish(rank=rank, run=RUN, round=7, how="its trainer returned")


def test_a_rank_that_is_given_up_has_no_holder_until_it_is_claimed_again(store: Store) -> None:
    claim = claim_rank(store, RUN, 3, 1)
    assert newer_holder(store, 3, 1) is None
    give_up_claim(store, RUN, claim, finish_of(3))
    assert newer_holder(store, 3, 0) == newer_holder(store, 3, 1) == Holder(2, finish_of(3))
    with pytest.raises(FencedError):
        check_claim(store, claim)
    again = claim_rank(store, RUN, 3, 1)
    assert (again.incarnation, again.epoch) == (2, 3)
    assert newer_holder(store, 3, 1) == Holder(3, None)
    with pytest.raises(FencedError):
        give_up_claim(store, RUN, claim, finish_of(3))


def test_a_claim_that_cannot_be_read_and_a_finish_of_another_rank_fence_and_finish_nothing(store: Store) -> None:
    store.create(keys.claim(3, 1), b"{")
    assert newer_holder(store, 3, 0) == Holder(1, None)
    claim = claim_rank(store, RUN, 2, 1)
    give_up_claim(store, RUN, claim, finish_of(1))
    assert newer_holder(store, 2, 1) == Holder(2, None)
