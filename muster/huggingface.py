"""DiLoCo for Hugging Face's `Trainer`, and for what is built on it, such as TRL's trainers.

from muster.huggingface import Algorithm, Context, DiLoCoCallback

trainer = Trainer(model, args, train_dataset=data, callbacks=[DiLoCoCallback(context, Algorithm(sync_every=500))])
trainer.train()
"""

from __future__ import annotations

from muster.options.frameworks.replica.huggingface_callback import DiLoCoCallback
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.model.final_model import FinalModel

__all__ = ["Algorithm", "Context", "DiLoCoCallback", "FinalModel"]
