"""Sinks of metrics, until the end of a replica: it never waits for them long."""

import logging
import math
import signal
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, Mock

import pytest

from muster.contract.exits import ReplicaExit
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.metric_sinks import MetricSinks
from muster.options.sinks.replica import listeners, writer
from muster.options.sinks.replica.listeners import open_sinks
from muster.options.sinks.replica.tensorboard import TensorBoard, _masked_checksum, _varint
from muster.options.sinks.replica.writer import Identity, MetricsWriter, Record
from muster.options.watch.replica import watching
from muster.replica.entry import main as entry
from muster.replica.entry.container_tree import Tree
from muster.replica.entry.trainer import EndNow, Listeners, Watching
from muster.replica.group.board import InnerGroup
from muster.replica.group.group_process import GroupProcess
from muster.replica.replica_errors import InputError, WatchError
from muster.replica.rounds.round import Rounds
from muster.replica.statistics.metrics import Ending, has_hanging_listeners
from tests.support.waiting import wait_until

TRAINERS = "tests.support.jobs.trainers"


PATIENT_SECONDS = 30.0


@dataclass
class Sink:
    """Keeps what it gets; waits for `may_write` before, and fails on the values in `fails_on`."""

    name: str = "kept"
    may_write: threading.Event = field(default_factory=threading.Event)
    has_begun: threading.Event = field(default_factory=threading.Event)
    fails_on: tuple[float, ...] = ()
    written: list[Record] = field(default_factory=list)
    ended: list[Ending] = field(default_factory=list)

    def write(self, records: Sequence[Record]) -> None:
        self.has_begun.set()
        assert self.may_write.wait(PATIENT_SECONDS)
        if any(value in self.fails_on for record in records for value in record.values.values()):
            message = "no connection"
            raise OSError(message)
        self.written += records

    def close(self, ending: Ending) -> None:
        self.ended.append(ending)

    @property
    def values(self) -> list[float]:
        return [value for record in self.written for value in record.values.values()]


class Kept(Sink):
    """A sink that asks the process to end once it gets the metric `waiting`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write.set()
        self._over, self._asking = threading.Event(), threading.Thread(target=self._ask, daemon=True)

    def write(self, records: Sequence[Record]) -> None:
        super().write(records)
        if any("waiting" in record.values for record in records) and not self._asking.is_alive():
            self._asking.start()

    def _ask(self) -> None:
        # To the thread that waits: a signal that another thread gets does not wake it. Nor does one that comes just
        # before it waits, but the next one does.
        while not self._over.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            self._over.wait(0.05)

    def end(self) -> None:
        """Ask no more, and not from now on: a sink may outlive its replica."""
        self._over.set()
        if self._asking.is_alive():
            self._asking.join()

    def steps_of(self, name: str) -> list[int]:
        return [record.step for record in self.written if name in record.values]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """The only sink of replicas that run in this process."""
    sink, before = Kept(), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(listeners, "OFFER", Listeners(lambda *_: MetricsWriter([sink])))
    monkeypatch.setattr(entry, "os", SimpleNamespace(_exit=sys.exit))
    yield sink
    sink.end()
    signal.signal(signal.SIGTERM, before)


def document(folder: Path, trainer: str = "train", **fields: Any) -> RunDocument:
    defaults: dict[str, Any] = {
        "run": "test",
        "plan_digest": "0",
        "replicas": 1,
        "trainer": f"{TRAINERS}:{trainer}",
        "kwargs": {"rounds": 3},
        "rendezvous_uri": f"{(folder / 'rendezvous').as_uri()}/",
        "min_participants": 1,
        "grace_seconds": 0.2,
        "timeout_seconds": 60.0,
    }
    return RunDocument(**{**defaults, **fields})


def run_here(folder: Path, trainer: str, kwargs: dict[str, Any], member: GroupProcess | None = None) -> ReplicaExit:
    """Run a replica in this process."""
    (folder / "opt").mkdir(parents=True)
    (folder / "document.json").write_bytes(document(folder, trainer, kwargs=kwargs).to_json())
    variables = {
        "MUSTER_DOCUMENT": (folder / "document.json").as_uri(),
        "MUSTER_RUN": "test",
        "MUSTER_RANK": "0",
        "MUSTER_ATTEMPT": "1",
        "SAGEMAKER_BASE_DIR": str(folder / "opt"),
    }
    return entry.main(variables, member=member)


def test_metrics_reach_the_sinks_with_the_step_of_the_run_and_with_the_rates(tmp_path: Path, kept: Kept) -> None:
    assert run_here(tmp_path / "done", "train", {"rounds": 3}) is ReplicaExit.DONE
    assert kept.steps_of("loss") == [1, 2, 3]
    assert kept.steps_of("utilisation") == kept.steps_of("update_norm") == [1, 2, 3]
    assert len(kept.steps_of("samples_per_second")) == len(kept.steps_of("run_samples_per_second")) == 2
    assert run_here(tmp_path / "failed", "fail_after", {"rounds": 1}) is ReplicaExit.USER_CODE
    assert kept.ended == [Ending.DONE, Ending.FAILED]


def test_what_a_stopped_replica_has_logged_is_written_before_it_ends(tmp_path: Path, kept: Kept) -> None:
    assert run_here(tmp_path, "wait_to_be_stopped", {"rounds": 1}) is ReplicaExit.STOPPED
    assert kept.steps_of("waiting") == [1]
    assert kept.ended == [Ending.STOPPED]


def test_what_a_replica_that_hangs_has_logged_is_written_after_its_reason(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def found_hanging(rounds: Rounds, _: object, end_now: EndNow) -> Iterator[None]:
        rounds.statistics.metrics.log(loss=0.5)
        end_now(WatchError(ReplicaExit.HANG, "no step for 600 s"))
        yield

    def exited(code: int) -> None:
        assert kept.steps_of("loss") == [0]
        assert kept.ended == [Ending.FAILED]
        assert (tmp_path / "opt" / "output" / "failure").exists()
        raise SystemExit(code)

    monkeypatch.setattr(watching, "OFFER", Watching(found_hanging))
    monkeypatch.setattr(entry, "os", SimpleNamespace(_exit=exited))
    with pytest.raises(SystemExit) as ended:
        run_here(tmp_path, "do_nothing", {})
    assert ended.value.code is ReplicaExit.HANG


def test_a_sink_that_hangs_does_not_keep_the_process_from_its_end(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(kept, "close", lambda _: released.wait(60))
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 0.1)
    with pytest.raises(SystemExit) as ended:
        run_here(tmp_path, "train", {"rounds": 1})
    released.set()
    assert ended.value.code is ReplicaExit.DONE
    wait_until("the end of the sink", lambda: not has_hanging_listeners())
    assert run_here(tmp_path / "again", "do_nothing", {}) is ReplicaExit.USER_CODE


def test_only_the_first_process_of_a_replica_has_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry.Rendezvous, "open", Mock(side_effect=StopIteration))
    for member, opened in ((GroupProcess(), 1), (GroupProcess(InnerGroup(1, 2, 1)), 0)):
        opening = Mock(return_value=MetricsWriter())
        monkeypatch.setattr(listeners, "OFFER", Listeners(opening))
        with pytest.raises(StopIteration):
            run_here(tmp_path / f"{opened}", "do_nothing", {}, member)
        assert opening.call_count == opened


def test_every_package_that_is_missing_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "find_spec", lambda _: None)
    arn = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"
    wanted = {"tensorboard": True, "mlflow": {"tracking_uri": arn}, "wandb": {"project": "gpt"}}
    with pytest.raises(InputError) as missing:
        open_sinks(document(tmp_path, metrics=MetricSinks.model_validate(wanted)), 0, Tree(tmp_path).checkpoints)
    assert [problem.partition(",")[0] for problem in missing.value.problems] == [
        "metrics.mlflow needs the package mlflow-skinny",
        "metrics.mlflow with an ARN needs the package sagemaker-mlflow",
        "metrics.wandb needs the package wandb",
    ]


def test_tensorboard_needs_no_package_and_its_files_lie_among_the_checkpoints(tmp_path: Path) -> None:
    opened = open_sinks(document(tmp_path, metrics=MetricSinks(tensorboard=True)), 0, Tree(tmp_path).checkpoints)
    opened.write(1, {"loss": 0.5})
    opened.close(Ending.DONE)
    assert len(list((tmp_path / "checkpoints" / "tensorboard").iterdir())) == 1


def test_the_names_of_a_replicas_series_follow_from_its_lineage() -> None:
    one, again, elsewhere = (Identity("digits", 3, f"s3://{bucket}/rendezvous/digits/") for bucket in "aab")
    assert one.name == elsewhere.name == "digits-r3"
    assert one.unique_name == again.unique_name != elsewhere.unique_name


# --- Metrics on their way to their sinks: the training loop never waits, and nothing that a sink does ends it -------


def willing(**options: object) -> Sink:
    sink = Sink(**options)  # type: ignore[arg-type]
    sink.may_write.set()
    return sink


def test_a_sink_that_hangs_takes_no_time_from_the_loop_and_the_end_waits_for_it_no_longer_than_it_may(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hanging, other = Sink("hanging"), willing()
    writer = MetricsWriter([hanging, other], records_max=3)
    writer.write(0, {"loss": 0.0})
    assert hanging.has_begun.wait(PATIENT_SECONDS)
    with caplog.at_level(logging.WARNING):
        for step in range(1, 6):
            writer.write(step, {"loss": float(step)})
        writer.close(Ending.DONE, seconds=0.2)
    # One record is being written, three wait, and two were lost.
    assert [message for message in caplog.messages if "hanging" in message] == [
        "event=metrics-failing sink=hanging reason='3 records wait for it'",
        "event=metrics-lost sink=hanging records=5",
    ]
    hanging.may_write.set()
    # It has the queue of its own: the other one has lost nothing that fitted into its queue.
    assert other.values[:1] == [0.0]


def test_a_sink_that_fails_is_reported_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    sink = willing(fails_on=(1.0, 2.0))
    writer = MetricsWriter([sink])
    with caplog.at_level(logging.WARNING):
        for step in (1, 2, 3):
            sink.has_begun.clear()
            writer.write(step, {"loss": float(step)})
            assert sink.has_begun.wait(PATIENT_SECONDS)
        writer.close(Ending.DONE)
    assert sink.values == [3.0]
    assert caplog.messages == [
        "event=metrics-failing sink=kept reason='OSError: no connection'",
        "event=metrics-lost sink=kept records=2",
    ]


def test_how_a_sink_ends_that_is_told_nothing() -> None:
    unused, failed = willing(), willing()
    for sink in (unused, failed):
        writer = MetricsWriter([sink])
        if sink is failed:
            writer.write(1, {"loss": 1.0})
        writer.close(Ending.FAILED)
        writer.write(2, {"loss": 2.0})
    assert (unused.ended, unused.written) == ([], [])
    assert (failed.ended, failed.written) == ([Ending.FAILED], [Record(1, ANY, {"loss": 1.0})])


# --- TensorBoard's files; that it reads them is checked where it is installed ---------------------------------------


def frames(path: Path) -> Iterator[bytes]:
    """The events of a file; their checksums are right."""
    body = path.read_bytes()
    while body:
        (length,) = struct.unpack("<Q", body[:8])
        assert _masked_checksum(body[:8]) == body[8:12]
        event = body[12 : 12 + length]
        assert _masked_checksum(event) == body[12 + length : 16 + length]
        body = body[16 + length :]
        yield event


def test_checksums_are_castagnolis_and_numbers_have_seven_bits_a_byte() -> None:
    # The check value of CRC-32C, masked.
    unmasked = 0xE3069283
    masked = ((unmasked >> 15 | unmasked << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert _masked_checksum(b"123456789") == struct.pack("<I", masked)
    assert [_varint(number) for number in (0, 127, 128, 300)] == [b"\0", b"\x7f", b"\x80\x01", b"\xac\x02"]


def test_a_file_has_a_version_a_session_and_the_values(tmp_path: Path) -> None:
    TensorBoard(tmp_path / "tensorboard").close(Ending.FAILED)
    assert not (tmp_path / "tensorboard").exists(), "nothing is written before the first record"
    board = TensorBoard(tmp_path / "tensorboard")
    board.write([Record(300, 2.0, {"loss": 0.5}), Record(301, 3.0, {"huge": 1e300, "nan": math.nan})])
    board.close(Ending.DONE)
    [path] = (tmp_path / "tensorboard").iterdir()
    version, session, loss, others = frames(path)
    assert version.endswith(b"brain.Event:2")
    assert session.endswith(b"\x3a\x02\x08\x01")
    named = b"\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15"
    assert loss == b"\x09" + struct.pack("<d", 2.0) + named + struct.pack("<f", 0.5)
    assert struct.pack("<f", math.inf) in others
