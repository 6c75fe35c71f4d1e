"""DiLoCo for PyTorch trainers.

from muster.torch import Algorithm, Context, DiLoCo

outer = DiLoCo(context.rendezvous, model, inner_optimizer, Algorithm(sync_every=500))
"""

from __future__ import annotations

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.frontends.torch_diloco import DiLoCo, LocalSGD
from muster.replica.model.final_model import FinalModel
from muster.replica.rounds.exchange import RoundOutcome
from muster.replica.states.plain_state import Stateful

__all__ = ["Algorithm", "Context", "DiLoCo", "FinalModel", "LocalSGD", "RoundOutcome", "Stateful"]
