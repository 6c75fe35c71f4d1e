"""DiLoCo for Lightning's `Trainer`.

from muster.lightning import Algorithm, Context, DiLoCoCallback

trainer = lightning.Trainer(max_steps=10_000, callbacks=[DiLoCoCallback(context, Algorithm(sync_every=500))])
trainer.fit(module, data)
"""

from __future__ import annotations

from muster.options.frameworks.replica.lightning_callback import DiLoCoCallback
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.model.final_model import FinalModel

__all__ = ["Algorithm", "Context", "DiLoCoCallback", "FinalModel"]
