"""torchft's `DiLoCo` and `LocalSGD` over a run's rendezvous.

from muster.torchft import Context, Manager

manager = Manager(context.rendezvous, model)
with torchft.local_sgd.DiLoCo(manager, [model], inner_optimizer, outer_optimizer, sync_every=500):
    ...
manager.shutdown()
"""

from __future__ import annotations

from muster.options.torchft.replica.torchft_manager import Manager
from muster.replica.context import Context

__all__ = ["Context", "Manager"]
