"""The trainer of the recovery benchmark: it joins its run, says how long that took, and ends its process."""

from __future__ import annotations

import json
import os
import time

import numpy as np

from bench.rounds import recovering
from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo


def train(context: Context, *, count: int, rounds: int) -> None:
    """A model of `count` float32, whose run has `rounds` rounds."""
    parameters = np.zeros(count, np.float32)
    began = time.time()
    outer = DiLoCo(context.rendezvous, parameters)
    ended = time.time()
    assert outer.round == rounds
    phases = recovering.phases(began, ended)
    print(json.dumps({"seconds": ended - recovering.STARTED, "joining": ended - began, **phases}), flush=True)
    os._exit(0)
