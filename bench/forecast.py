"""What `muster plan` predicts against what trains: over a store as slow as S3 and over three places, a dozen settings.

Each setting trains about as long as it exchanges, where a wrong prediction shows most. Over the paced store replicas
are processes and their front end measures (see `paced_rounds`); over places they train in virtual time (see `places`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from bench.places import LONG, Links, linked
from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Pace, Server, running_server
from bench.table import Row
from muster.contract.run.forecast import ExchangeSettings, Phase
from muster.options.forecast.contract.round_time import Exchange, Way
from muster.options.forecast.contract.utilisation import phase
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.rounds.round_context import RoundContext
from tests.exploration.trainers import Silent
from tests.exploration.world import Process

_AIM = "<= 0.1"
_MIB = 2**20
_PACE = Pace(stretch=20.0)
_SETTLED, _ROUNDS = 2, 5
_TIMEOUT_SECONDS = 900.0


@dataclass(frozen=True)
class _Case:
    """A setting. `links`: over `places`, in virtual time; else over the paced store."""

    replicas: int
    mib: int
    step_seconds: float
    settings: ExchangeSettings
    places: int = 1
    links: Links = field(default=LONG)

    @property
    def name(self) -> str:
        """What tells it from the others."""
        shown = self.settings.model_dump(exclude_defaults=True)
        where = "" if self.places == 1 else f", {self.places} places, {self.links.latency * 1e3:.0f} ms, "
        where += "" if self.places == 1 else f"{self.links.rate * 8 / 1e9:g} Gb/s"
        return f"N={self.replicas}, B={self.mib} MiB{where}, {', '.join(f'{k} {v}' for k, v in shown.items())}"

    @property
    def predicted(self) -> Phase:
        """By the model of a round."""
        shares = (self.replicas // self.places,) * self.places
        near, far = Way(), Way((self.links.latency,) * 2, self.links.connection_rate, self.links.rate)
        if self.places > 1:
            near = Way((self.links.near_latency,) * 2, self.links.connection_rate)
        # What processors do takes a twentieth of the paced store's time, and none of the virtual one.
        cores = _PACE.stretch if self.places == 1 else 1e9
        whole = Exchange(self.mib * _MIB / 4, self.replicas, places=shares, way=near, far=far, cores=cores)
        return phase(whole, self.settings, self.step_seconds)


def _settings(sync_every: int, **others: Any) -> ExchangeSettings:
    return ExchangeSettings(sync_every=sync_every, **others)


_PACED = (
    _Case(8, 1, 0.030, _settings(10)),
    _Case(4, 64, 0.050, _settings(10)),
    _Case(4, 64, 0.050, _settings(10, codec="int4")),
    _Case(4, 64, 0.050, _settings(20, delay=6)),
    _Case(4, 16, 0.020, _settings(10, eager=True)),
    _Case(4, 64, 0.060, _settings(10, fragments=2, delay=2)),
)
_FASTER = Links(latency=0.070, rate=5e9 / 8)
_PLACED = (
    _Case(6, 256, 0.031, _settings(100), 3),
    _Case(4, 256, 0.031, _settings(100), 2),
    _Case(3, 256, 0.031, _settings(100), 3),
    _Case(6, 256, 0.031, _settings(100), 3, _FASTER),
    _Case(6, 256, 0.031, _settings(100, delay=50), 3),
    _Case(6, 256, 0.031, _settings(60, eager=True), 3),
)


def run() -> list[Row]:
    """All settings; about ten minutes."""
    rows = [_row(case, _placed(case)) for case in _PLACED]
    with running_server(_PACE) as server:
        rows += [_row(case, _paced(server, case)) for case in _PACED]
    return rows


def _row(case: _Case, measured: float) -> Row:
    found = case.predicted
    note = (
        f"predicted {found.utilisation:.3f}, measured {measured:.3f}; {found.compute_seconds:.2f} s of training, "
        f"predicted exchange {found.exchange_seconds:.2f} s"
    )
    return Row(f"wrong by, {case.name}", abs(found.utilisation / measured - 1), "of it", _AIM, note=note)


def _paced(server: Server, case: _Case) -> float:
    """The utilisation of the replicas, once they are in step."""
    prefix = f"rendezvous/{uuid.uuid4().hex}/"
    rounds = _ROUNDS * case.settings.fragments
    options = [
        case.replicas,
        case.mib * _MIB // 4,
        case.step_seconds * _PACE.stretch,
        rounds,
        f"s3://{BUCKET}/{prefix}",
    ]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.rounds.training",
                *map(str, [rank, *options]),
                json.dumps(case.settings.model_dump(exclude_none=True)),
            ],
            env=client_environment(server, f"rank{rank}"),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(case.replicas)
    ]
    try:
        answers = [json.loads(process.communicate(timeout=_TIMEOUT_SECONDS)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        server.delete(f"{BUCKET}/{prefix}", above_bytes=0)
    return _mean_share([share for answer in answers for share in answer[_SETTLED * case.settings.fragments :]])


def _mean_share(shares: list[float]) -> float:
    """Of phases that train for as long: all training of all time."""
    return 1 / fmean(1 / share for share in shares)


def _placed(case: _Case) -> float:
    """The utilisation in virtual time, once the replicas are in step."""
    algorithm = Algorithm(**case.settings.model_dump(exclude_none=True))
    ends: dict[int, list[float]] = {}

    def train(process: Process, context: RoundContext) -> None:
        parameters = np.zeros(process.world.setting.count, np.float32)
        outer = DiLoCo(Rendezvous.open(context, process.rank, process.attempt, Silent()), parameters, algorithm)
        while outer.round < _ROUNDS:
            process.wait(process.stop, case.step_seconds)
            before = outer.round
            outer.step()
            if outer.round > before:
                ends.setdefault(process.rank, []).append(process.world.seconds)
        outer.finish()

    with linked(case.places, case.replicas, case.links, train):
        pass
    return _mean_share([case.predicted.compute_seconds / seconds for one in ends.values() for seconds in _spans(one)])


def _spans(ends: list[float]) -> Iterator[float]:
    return (later - earlier for earlier, later in pairwise(ends[_SETTLED - 1 :]))
