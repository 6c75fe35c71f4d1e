"""Replicas that train shards of numbers, and note each number that they train: who trained what, and what counted."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context, Shards
from muster.replica.frontends.array_diloco import DiLoCo
from tests.support.peers import Run, run_all

COUNT = 50


class Gone(BaseException):
    """The process ends here, without a word."""


@dataclass
class Training:
    """The trainers of one run."""

    run: Run
    total: int
    algorithm: Algorithm = field(default_factory=lambda: Algorithm(sync_every=5))
    epochs: int = 1
    trained: dict[tuple[int, int], list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    """The numbers of each step, by rank and round."""
    left: set[tuple[int, int]] = field(default_factory=set)
    """The last round of each replica, and the epoch that it saw."""

    def train(
        self,
        context: Context,
        read: Callable[[Shards], Iterable[Any]],
        step: Callable[[DiLoCo, Any], float] = lambda _, __: 1.0,
    ) -> None:
        """What a replica does. `step` returns by how much the parameters fall in a step."""
        parameters = np.zeros(COUNT, np.float32)
        shards = context.shards(self.total, epochs=self.epochs)
        outer = DiLoCo(context.rendezvous, parameters, self.algorithm, checkpoint_dir=context.checkpoint_dir)
        # A rerun repeats the steps after those with which it continues.
        del self.trained[context.rank, outer.round + 1][outer.steps :]
        for batch in read(shards):
            steps = self.trained[context.rank, outer.round + 1]
            parameters -= np.float32(step(outer, batch))
            steps.append([int(number) for number in np.ravel(batch)])
            outcome = outer.step(len(steps[-1]))
            if outcome is not None and not outcome.took_part:
                # What was trained during the exchange is dropped as well.
                self.trained[context.rank, outer.round + 1].clear()
        self.left.add((outer.round, shards.epoch))
        outer.finish()

    def all_train(
        self,
        contexts: Iterable[Context],
        read: Callable[[Shards], Iterable[Any]],
        step: Callable[[DiLoCo, Any], float] = lambda _, __: 1.0,
    ) -> list[BaseException]:
        """Train in all replicas at once; the errors that ended some of them."""
        errors: list[BaseException] = []

        def work(context: Context) -> None:
            try:
                self.train(context, read, step)
            except BaseException as error:
                errors.append(error)

        run_all([threading.Thread(target=work, args=(context,), daemon=True) for context in contexts])
        return errors

    def counted(self) -> Counter[int]:
        """How often each number counts, by the members of the rounds and what they did."""
        found: Counter[int] = Counter()
        for round_ in range(1, max((last for last, _ in self.left), default=0) + 1):
            for member in self.run.commit(round_).members:
                for numbers in self.trained[member.rank, round_]:
                    found.update(numbers)
        return found
