"""One replica that trains at a pace of its own, in a process of its own.

Run as `python -m bench.rounds.training RANK REPLICAS COUNT STEP ROUNDS URI ALGORITHM`, the last as JSON. Answers with
the utilisation of each round, as its front end has measured it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

import numpy as np

from bench.rounds.schemes import Place, joined
from muster.contract.layout import split_s3_uri
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.store.s3_store import S3ObjectStore

_GRACE_SECONDS = 600.0


def train(place: Place, count: int, step_seconds: float, rounds: int, algorithm: Algorithm) -> list[float]:
    """A step changes nothing and lasts as long as it should; what one is late for, the next one makes up."""
    parameters = np.zeros(count, np.float32)
    outer = DiLoCo(joined(place), parameters, algorithm)
    found: list[float] = []
    due = time.monotonic()
    while outer.round < rounds:
        due += step_seconds
        time.sleep(max(0.0, due - time.monotonic()))
        before, began = outer.round, time.monotonic()
        outer.step()
        due += time.monotonic() - began
        if outer.round > before:
            found.append(outer.utilisation)
    outer.finish()
    return found


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    # What the replica prints for its job's log is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _rank, _replicas, _count, _step, _rounds, _uri, _algorithm = sys.argv[1:]
    _place = Place(S3ObjectStore(*split_s3_uri(_uri)), int(_rank), int(_replicas), _GRACE_SECONDS)
    _settings = Algorithm(**json.loads(_algorithm))
    print(json.dumps(train(_place, int(_count), float(_step), int(_rounds), _settings)), file=answers, flush=True)
