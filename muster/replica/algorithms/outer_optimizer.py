"""The outer optimizer: applies a round's mean pseudo-gradient identically on all replicas. Pure."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from muster.replica.kernel import kernel
from muster.replica.parts.cut import Cut
from muster.replica.wire.binary_format import Floats

RUN_ELEMENTS = 2**16  # advanced at once
# The training loop needs the cores beside it.
THREADS_MAX = 4
THREAD_ELEMENTS_MIN = 2**22  # 16 MiB of each array: far more than a thread's start


@dataclass
class GlobalState:
    """The state of every replica after `round` rounds, bit for bit: flat float32 arrays of the same length.

    Of a replica with several processes each holds the elements of its `Cut`.
    """

    round: int
    parameters: Floats
    momentum: Floats


@dataclass(frozen=True)
class Nesterov:
    """SGD with Nesterov momentum as in DiLoCo (arXiv 2311.08105): m = μm + g, θ = θ - η(g + μm).

    Element by element in float32, one operation at a time: the same bits on any machine. With η = 1 and μ = 0 the
    parameters become the replicas' weighted average.

    The learning rate may fall linearly to `final_learning_rate` over the first `decay_rounds` updates, and the momentum
    may rise linearly from 0 over the first `momentum_rounds`. 0: it is the same from the start. What it has added up
    is forgotten every `restart_rounds` updates; 0: never.
    """

    learning_rate: float = 0.7
    momentum: float = 0.9
    decay_rounds: int = 0
    final_learning_rate: float = 0.0
    momentum_rounds: int = 0
    restart_rounds: int = 0

    def at(self, update: int) -> Nesterov:
        """The optimizer of the `update`-th update, from 0, with constant settings.

        Sums and products of two numbers only: the same bits on any machine.
        """
        decayed = min(1.0, update / self.decay_rounds) if self.decay_rounds else 0.0
        risen = min(1.0, update / self.momentum_rounds) if self.momentum_rounds else 1.0
        rate = self.learning_rate + (self.final_learning_rate - self.learning_rate) * decayed
        return Nesterov(rate, self.momentum * risen)

    def estimated(self, state: GlobalState, gradient: Floats, cut: Cut) -> Floats:
        """The parameters after a round with the mean `gradient`; `state` is not changed."""
        ahead = GlobalState(state.round, state.parameters.copy(), state.momentum.copy())
        self.apply(ahead, gradient, cut)
        return ahead.parameters

    def apply(self, state: GlobalState, mean: Floats, cut: Cut) -> None:
        """Advance `state` by one round, in place.

        Args:
            mean: what this process holds of the mean of the round's fragment. That of statistics replaces them: it is
                that of their negative values, as pseudo-gradients are.
            cut: which elements this process holds.
        """
        part = cut.fragment_of(state.round + 1)
        local, border = cut.local(part), cut.parameters_in(part)
        within = slice(local.start, local.start + border)
        update = state.round // cut.fragments
        self._begin_again(state, cut)
        self.at(update).step(state.parameters[within], state.momentum[within], mean[:border])
        np.negative(mean[border:], out=state.parameters[within.stop : local.stop])
        state.round += 1

    def skip(self, state: GlobalState, cut: Cut) -> None:
        """Advance `state` by a void round: nothing changes but a momentum that begins again."""
        self._begin_again(state, cut)
        state.round += 1

    def _begin_again(self, state: GlobalState, cut: Cut) -> None:
        """Forget the momentum that the next round would use, where it begins again."""
        if self.restart_rounds and state.round // cut.fragments % self.restart_rounds == 0:
            part = cut.fragment_of(state.round + 1)
            begin = cut.local(part).start
            state.momentum[begin : begin + cut.parameters_in(part)] = 0

    def step(self, parameters: Floats, momentum: Floats, gradient: Floats) -> None:
        """Advance `parameters` and `momentum` in place, large ones in several threads: one moves a part of what the
        memory can."""
        threads = min(THREADS_MAX, os.cpu_count() or 1, parameters.size // THREAD_ELEMENTS_MIN)
        if threads < 2:
            self._step(parameters, momentum, gradient)
            return
        edges = [parameters.size * thread // threads for thread in range(threads + 1)]
        with ThreadPoolExecutor(threads, "outer-step") as pool:
            steps = [
                pool.submit(self._step, parameters[begin:end], momentum[begin:end], gradient[begin:end])
                for begin, end in pairwise(edges)
            ]
        for step in steps:
            step.result()

    def _step(self, parameters: Floats, momentum: Floats, gradient: Floats) -> None:
        """Advance a run at a time: the update takes memory, and the cache."""
        mu, eta = np.float32(self.momentum), np.float32(self.learning_rate)
        if (compiled := kernel()) and all(each.flags.c_contiguous for each in (parameters, momentum, gradient)):
            compiled.nesterov(parameters, momentum, gradient, mu, eta)
            return
        room = np.empty(min(RUN_ELEMENTS, parameters.size), np.float32)
        for start in range(0, parameters.size, RUN_ELEMENTS):
            run = slice(start, start + RUN_ELEMENTS)
            moved, given = momentum[run], gradient[run]
            moved *= mu
            moved += given
            update = np.multiply(moved, mu, out=room[: moved.size])
            update += given
            update *= eta
            parameters[run] -= update
