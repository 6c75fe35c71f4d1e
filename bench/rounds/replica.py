"""One replica of a group, in a process of its own.

Run as `python -m bench.rounds.replica RANK REPLICAS COUNT CODEC GRACE URI`.

It reads commands from standard input, one JSON object a line, and answers each with one line:
`{"scheme": name, "round": n}` runs a round. With `"profile": true` the answer has its stages. With `"die_at": prefix`
the process kills itself before its first PUT of a key with that prefix (`"after": true`: right after it).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
import time
from contextlib import nullcontext

import numpy as np

from bench.rounds.memory import peak_mib, reset_peak, resident_mib
from bench.rounds.schemes import SCHEMES, Place, Scheme
from bench.rounds.stages import measured
from muster.contract.layout import split_s3_uri
from muster.replica.codecs import codec_named
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import Bytes, Creation


class _Mortal(S3ObjectStore):
    """A store at which the process can be made to die."""

    die_at: str | None = None
    after = False

    def create(self, key: str, body: Bytes) -> None:
        """As the store does it, but kill the process where the command says so."""
        self._die(key, after=False)
        super().create(key, body)
        self._die(key, after=True)

    def creation(self, key: str, size: int) -> Creation | None:
        """As the store does it, but an object at which the process dies is made by `create`."""
        return None if self._is_doomed(key) else super().creation(key, size)

    def upload(self, key: str, body: Bytes) -> None:
        """As `create`."""
        self._die(key, after=False)
        super().upload(key, body)
        self._die(key, after=True)

    def _is_doomed(self, key: str) -> bool:
        return self.die_at is not None and key.startswith(self.die_at)

    def _die(self, key: str, *, after: bool) -> None:
        if self._is_doomed(key) and self.after is after:
            os.kill(os.getpid(), signal.SIGKILL)


def main(place: Place, store: _Mortal, count: int) -> None:
    """Execute commands until standard input ends."""
    logging.disable(logging.WARNING)
    # What the replica prints for its job's log is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gradient = np.random.default_rng(place.rank).standard_normal(count, np.float32)
    schemes: dict[str, Scheme] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command["scheme"]
        if name not in schemes:
            schemes[name] = SCHEMES[name](place)
            schemes[name].prepare(gradient)
        answer: dict[str, object] = {}
        if "round" in command:
            store.die_at, store.after = command.get("die_at"), command.get("after", False)
            before = resident_mib()
            reset_peak()
            began = time.perf_counter()
            before_cpu = os.times()
            with measured(codec_named(place.codec)) if command.get("profile") else nullcontext() as stages:
                mean = schemes[name].exchange(command["round"], gradient)
            seconds, cpu = time.perf_counter() - began, os.times()
            answer = {
                "seconds": seconds,
                "user_seconds": cpu.user - before_cpu.user,
                "kernel_seconds": cpu.system - before_cpu.system,
                "stages": stages.document() if stages else {},
                "added_mib": peak_mib() - before,
                "mean": None if mean is None or not command.get("digest") else hashlib.sha256(mean.data).hexdigest(),
            }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _rank, _replicas, _count, _codec, _grace, _uri = sys.argv[1:]
    _store = _Mortal(*split_s3_uri(_uri))
    main(Place(_store, int(_rank), int(_replicas), float(_grace), _codec), _store, int(_count))
