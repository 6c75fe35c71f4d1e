"""Sixty-four replicas as real processes on one machine: how many rounds a run of the digits makes in a second.

They meet in a local directory, as replicas on one machine do, so what is measured is the replicas' own work: training,
exchange, and waiting for each other. The start of the processes is left out: the first rounds are.

Two cores share 64 processes, so the CPU time of a round, divided by the cores, is the least that it can take. It is
the difference of two runs of different lengths, and so free of what each process does once.
"""

from __future__ import annotations

import os
import resource
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.replicas import Training
from bench.table import Row
from bench.usage import available_bytes, used
from muster.contract import timestamps
from muster.contract.run.commit import Commit

_REPLICAS = 64
_ROUNDS, _FEW_ROUNDS = 24, 4
_STARTING = 4  # rounds in which some replicas still start, or import what they need once
_NEEDED_MB = 64 * 110  # a replica of the digits takes about 60 MB of its own
_TRAINER = "examples.digits.trainer:train"


def run() -> list[Row]:
    """Nothing where the machine has too little free memory for all of them."""
    where = f"{_REPLICAS} processes on {os.cpu_count()} cores, a local directory"
    if (free := available_bytes() / 2**20) < _NEEDED_MB:
        note = f"not measured: {free:,.0f} MB are free, and {_NEEDED_MB:,} are needed"
        return [Row(f"{_REPLICAS} replicas, digits: rounds", float("nan"), "1/s", ">= 1", note=note)]
    _, before = _trained(_FEW_ROUNDS)
    seconds, cpu = _trained(_ROUNDS)
    of_a_round = (cpu - before) / (_ROUNDS - _FEW_ROUNDS)
    least = of_a_round / (os.cpu_count() or 1)
    steady = seconds[_STARTING:]
    spread = f"a round takes {min(steady):.2f} to {max(steady):.2f} s, median {median(steady):.2f} s"
    name, rate = f"{_REPLICAS} replicas, digits", len(steady) / sum(steady)
    bound = f"all replicas together; no round can take less than {least:.2f} s"
    return [
        Row(f"{name}: rounds", rate, "1/s", ">= 1", note=f"{where}; {spread}"),
        Row(f"{name}: CPU of a round", of_a_round, "s", note=bound),
    ]


def _trained(rounds: int) -> tuple[list[float], float]:
    """The seconds between the commits of a run, and the CPU seconds of its replicas."""
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"{Path(folder).as_uri()}/"
        training = Training(_TRAINER, {"rounds": rounds}, [1] * _REPLICAS, rendezvous=rendezvous)
        usage = used(training.printed, of=resource.RUSAGE_CHILDREN)
        files = sorted(Path(folder, "commits").iterdir())
        commits = [Commit.from_json(file.read_bytes(), file.as_uri()) for file in files]
    times = [timestamps.parse(commit.committed_at).timestamp() for commit in commits]
    return [later - earlier for earlier, later in pairwise(times)], usage.cpu
