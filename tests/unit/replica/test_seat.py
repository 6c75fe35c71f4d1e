"""Claims: one holder per rank, whatever order processes start in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.replica.errors import FencedError, RendezvousError
from muster.replica.rounds.claims import Seat, check_seat, renew_seat, take_seat
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import ObjectExistsError, Store
from muster.replica.wire import keys
from tests.support.peers import RUN, Faults, FaultyStore


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path)


def test_incarnations_count_within_an_attempt_and_epochs_over_all(store: Store) -> None:
    seats = [take_seat(store, RUN, 3, attempt) for attempt in (1, 1, 2, 2, 5)]
    assert [(seat.attempt, seat.incarnation, seat.epoch) for seat in seats] == [
        (1, 1, 1),
        (1, 2, 2),
        (2, 1, 3),
        (2, 2, 4),
        (5, 1, 5),
    ]
    check_seat(store, seats[-1])
    for seat in seats[:-1]:
        with pytest.raises(FencedError, match="superseded"):
            check_seat(store, seat)


def test_of_many_that_claim_at_once_one_holds_the_rank(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        seats = list(pool.map(lambda _: take_seat(store, RUN, 0, 1), range(8)))
    assert sorted(seat.epoch for seat in seats) == list(range(1, 9))
    assert sorted(seat.incarnation for seat in seats) == list(range(1, 9))


def test_a_known_epoch_saves_reading_the_row_from_its_beginning(tmp_path: Path) -> None:
    for _ in range(4):
        take_seat(LocalStore(tmp_path), RUN, 0, 1)
    read: list[str] = []
    seat = take_seat(FaultyStore(LocalStore(tmp_path), Faults(before_read=read.append)), RUN, 0, 1, known_epoch=4)
    assert (seat.epoch, seat.incarnation) == (5, 5)
    assert keys.claim(0, 1) not in read


def test_a_seat_is_renewed_by_its_holder_alone(store: Store) -> None:
    first = take_seat(store, RUN, 0, 1)
    renewed = renew_seat(store, RUN, first)
    assert renewed == Seat(0, 1, 1, 2)
    take_seat(store, RUN, 0, 2)
    with pytest.raises(FencedError):
        renew_seat(store, RUN, renewed)


@pytest.mark.parametrize("renew", [False, True])
def test_a_claim_whose_answer_was_lost_is_recognised(tmp_path: Path, renew: bool) -> None:
    lost = iter([True])

    def lose_answer(key: str) -> None:
        if next(lost, False):
            raise ObjectExistsError(key)

    inner = LocalStore(tmp_path)
    store = FaultyStore(inner, Faults(after_create=lose_answer))
    if renew:
        held = take_seat(inner, RUN, 0, 1)
        assert renew_seat(store, RUN, held).epoch == 2
    else:
        assert take_seat(store, RUN, 0, 1) == Seat(0, 1, 1, 1)


def test_a_damaged_claim_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create(keys.claim(0, 1), b"{")
    with pytest.raises(RendezvousError, match=r"claims/00000/000001\.json"):
        take_seat(store, RUN, 0, 1)
