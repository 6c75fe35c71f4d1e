"""What a trainer gives to be saved comes back equal, or is refused by the name of its place."""

import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, StrEnum, auto
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import ParametersError
from muster.replica.states.state_buffer import PlainArrays, packed_state, unpacked_state
from muster.replica.statistics.metrics import Metrics
from tests.support.peers import Run


class Colour(Enum):
    RED = "red"


class Mode(StrEnum):
    FAST = auto()


class Right(Flag):
    READ = auto()
    WRITE = auto()


class Moments(NamedTuple):
    count: Any
    mean: Any


class Lookup(dict[str, int]):
    pass


def again(state: dict[str, Any]) -> dict[str, Any]:
    return unpacked_state(packed_state(state, PlainArrays()), PlainArrays())


def ordered_with_versions() -> OrderedDict[str, int]:
    made = OrderedDict(b=1, a=2)
    made.__dict__["_metadata"] = {"": {"version": 2}}
    return made


EQUAL: dict[str, Any] = {
    "plain": [None, True, 1, -0.0, 1e300, "Grüße \ud800", {"a": [], "b": {}}],
    "large numbers": [2**128, -(2**5000)],
    "numbers of NumPy": [np.float64(0.1), np.float32(0.1), np.int64(-1), np.bool_(True), np.datetime64("2026-11-24")],
    "keys": {0: {"momentum": 1}, 1.5: 2, (1, "a"): 3, None: 4, np.int64(7): 5, True: 6, "!": 7},
    "a tag as a key": {"!": ["array", 0]},
    "sequences": ((1, (2,)), {1, 2}, frozenset({"a"}), deque([1, 2], 3), deque([1]), range(1, 9, 2)),
    "mappings": [defaultdict(list, a=[1]), defaultdict(None, a=1), Counter("abca"), ordered_with_versions()],
    "times": [datetime(2026, 11, 24, 1, 2, 3, 4, UTC), date(2026, 1, 1), timedelta(1, 2, 3)],
    "zone": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    "others": [b"\0\xff", bytearray(b"a"), 1 - 2j, Decimal("0.10"), Path("/a/b"), PurePosixPath("c")],
    "classes": [Colour.RED, Mode.FAST, Moments(np.int32(1), {"w": Moments(0, 1)})],
    "python": random.Random(3).getstate(),  # noqa: S311 - its state, not its numbers
    "generator": np.random.default_rng(3).bit_generator.state,
}


@pytest.mark.parametrize("name", EQUAL)
def test_values_come_back_equal_and_of_their_types(name: str) -> None:
    value = EQUAL[name]
    found = again({"it": value})["it"]
    # Of all values here the text names type and content.
    assert repr(found) == repr(value)
    assert getattr(found[3], "_metadata", None) == {"": {"version": 2}} if name == "mappings" else True


def test_arrays_come_back_with_their_types() -> None:
    rng = np.random.default_rng(3)
    arrays = [
        rng.standard_normal((2, 3)).astype(np.float32),
        np.arange(6).reshape(2, 3).T,
        np.array(["Grüße", "a"]),
        np.array([b"ab"]),
        np.array(["2026-01-01"], "M8[s]"),
        np.array(3, ">i2"),
        np.empty((0, 4), np.float16),
        np.array([np.nan, 1j]),
    ]
    shared = np.arange(3)
    found = again({"trainer": {"all": arrays, "twice": (shared, {"again": shared})}})["trainer"]
    for given_, read in zip(arrays, found["all"], strict=True):
        assert read.dtype == given_.dtype
        np.testing.assert_array_equal(read, given_)
    assert found["twice"][0] is found["twice"][1]["again"]


LOCAL = Enum("Local", {"A": 1})
REFUSED: dict[str, Any] = {
    "object": object(),
    "function": len,
    "lambda": lambda: 0,
    "user's dict": Lookup(a=1),
    "namespace": SimpleNamespace(a=1),
    "objects": np.array([{}, None], object),
    "records": np.zeros(2, [("a", "i4")]),
    "masked": np.ma.masked_array([1, 2], [True, False]),
    "void": np.zeros(1, [("a", "i4")])[0],
    "empty text of NumPy": np.str_(""),
    "several flags": Right.READ | Right.WRITE,
    "zone": datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    "factory": defaultdict(lambda: 1, a=1),
    "enum of a function": LOCAL.A,
    "generator": np.random.default_rng(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_come_back_equal_is_refused_with_its_place(name: str) -> None:
    state = {"round": 1, "trainer": {"scheduler": {"groups": [{"lr": 1.0}, {0: REFUSED[name]}]}}}
    with pytest.raises(ParametersError) as error:
        packed_state(state, PlainArrays())
    assert str(error.value).startswith("trainer_state['scheduler']['groups'][1][0] is of type ")


def test_a_state_that_holds_itself_is_refused() -> None:
    state: dict[str, Any] = {"trainer": {}}
    state["trainer"]["self"] = state
    with pytest.raises(ParametersError, match="levels deep"):
        packed_state(state, PlainArrays())


def test_the_class_of_a_value_is_looked_up_and_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("an_optimizer")
    module.State = NamedTuple("State", [("count", int)])  # type: ignore[attr-defined]
    module.State.__module__ = "an_optimizer"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "an_optimizer", module)
    body = packed_state({"it": module.State(3)}, PlainArrays())  # type: ignore[attr-defined]
    assert unpacked_state(body, PlainArrays())["it"].count == 3
    monkeypatch.delitem(sys.modules, "an_optimizer")
    with pytest.raises(ParametersError, match=r"an_optimizer\.State"):
        unpacked_state(body, PlainArrays())


_KEYS = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.booleans(), st.none(), st.floats(allow_nan=False))
_VALUES = st.recursive(
    st.one_of(_KEYS, st.floats(), st.binary(max_size=3), st.complex_numbers(allow_nan=False), st.dates()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(deque),
        st.dictionaries(_KEYS, inner, max_size=3),
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_any_nesting_comes_back_equal(value: object) -> None:
    assert repr(again({"it": value})) == repr({"it": value})


class Holder:
    def __init__(self, state: Mapping[Any, Any]) -> None:
        self.state = dict(state)

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = state_dict


def joined(run: Run, folder: Path, holder: Holder, attempt: int) -> DiLoCo:
    rendezvous = Rendezvous.open(run.context(), 0, attempt, Metrics())
    own: dict[str, Any] = {"trainer_state": {"inner": holder}, "checkpoint_dir": folder}
    return DiLoCo(rendezvous, np.zeros(4, np.float32), Algorithm(), **own)


def test_an_inner_optimizers_state_by_number_is_there_after_a_rerun(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    given_ = {"state": {0: {"momentum": np.float32(0.5)}}, "milestones": Counter({30: 1})}
    joined(run, tmp_path / "own", Holder(given_), 1).step()
    rerun = Holder({})
    joined(run, tmp_path / "own", rerun, 2)
    assert rerun.state == given_
    assert type(rerun.state["state"][0]["momentum"]) is np.float32


def test_what_cannot_be_saved_ends_the_trainer_before_it_trains(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    with pytest.raises(ParametersError, match=r"trainer_state\['inner'\]\['best'\] is of type object"):
        joined(run, tmp_path / "own", Holder({"best": object()}), 1)
