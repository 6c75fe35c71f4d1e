"""Watches a training by the rules of the spec's `watch`, if it has some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from muster.contract.run.run_document import RunDocument
from muster.replica.entry.trainer import EndNow, Watching
from muster.replica.rounds.round import Rounds


@contextmanager
def _watched(rounds: Rounds, document: RunDocument, end_now: EndNow) -> Iterator[None]:
    rules = document.watch
    if rules is None:
        yield
        return
    from muster.options.watch.replica.self_watch import SelfWatch  # noqa: PLC0415 - not without rules
    from muster.options.watch.replica.training_watch import TrainingWatch  # noqa: PLC0415

    rounds.judge = own = SelfWatch(rounds, rules)
    watch = TrainingWatch(rounds.context, rounds.statistics.progress, own.findings, end_now)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


OFFER = Watching(_watched)
