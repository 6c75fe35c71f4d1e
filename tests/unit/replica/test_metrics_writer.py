"""Metrics on their way to their sinks: the training loop never waits, and nothing that a sink does ends it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from muster.replica.metrics import METRICS_MAX, UTILISATION, Metrics
from muster.replica.sinks.writer import Ending, MetricsWriter, Record

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


def willing(**options: object) -> Sink:
    sink = Sink(**options)  # type: ignore[arg-type]
    sink.may_write.set()
    return sink


def test_everything_that_is_logged_is_written_with_its_step_before_the_end() -> None:
    sink = willing()
    writer = MetricsWriter([sink])
    metrics = Metrics(writer)
    for step in (10, 20):
        metrics.step = step
        metrics.log(loss=1 / step, accuracy=0.5)
    writer.ending = Ending.DONE
    writer.close()
    assert [(record.step, dict(record.values)) for record in sink.written] == [
        (10, {"loss": 0.1, "accuracy": 0.5}),
        (20, {"loss": 0.05, "accuracy": 0.5}),
    ]
    assert sink.ended == [Ending.DONE]


def test_a_process_that_says_nothing_of_its_end_has_failed() -> None:
    sink = willing()
    writer = MetricsWriter([sink])
    writer.write(1, {"loss": 1.0})
    writer.close()
    assert sink.ended == [Ending.FAILED]


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
        writer.close(seconds=0.2)
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
        writer.close()
    assert sink.values == [3.0]
    assert caplog.messages == [
        "event=metrics-failing sink=kept reason='OSError: no connection'",
        "event=metrics-lost sink=kept records=2",
    ]


def test_a_sink_to_which_nothing_was_written_is_not_closed() -> None:
    sink = willing()
    MetricsWriter([sink]).close()
    assert sink.ended == []


def test_what_comes_after_the_end_is_ignored() -> None:
    sink = willing()
    writer = MetricsWriter([sink])
    writer.close()
    writer.write(1, {"loss": 1.0})
    assert sink.written == []


def test_rates_are_shown_beside_the_metrics_that_contributions_have_room_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics = Metrics()
    metrics.log(**{f"metric_{number}": 0.5 for number in range(METRICS_MAX)})
    metrics.log(**{UTILISATION: 0.9})
    metrics.show({"tokens_per_second": 12_345.6, "run_tokens_per_second": 50_000.0})
    assert "tokens_per_second" not in metrics.latest()
    assert capsys.readouterr().out.splitlines()[-1] == "tokens_per_second=12345.6 run_tokens_per_second=50000"
