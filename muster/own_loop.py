"""Trainers that bring their own loop: they were written for the former entrypoint, and run here unchanged.

    trainer: muster.own_loop:train

`python -m muster.own_loop` takes the former entrypoint's flags and variables.
"""

from __future__ import annotations

from muster.options.executor.replica.all_reduce import ObjectStoreAllReduce
from muster.options.executor.replica.trainer_call import train

__all__ = ["ObjectStoreAllReduce", "train"]

if __name__ == "__main__":
    import sys

    from muster.options.executor.replica.entrypoint import main

    sys.exit(main())
