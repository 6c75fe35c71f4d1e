"""Trainers that bring their own loop: they were written for the former entrypoint, and run here unchanged."""

from muster.replica.legacy.all_reduce import ObjectStoreAllReduce as ObjectStoreAllReduce
from muster.replica.legacy.own_loop import train as train

__all__ = ["ObjectStoreAllReduce", "train"]
