"""Muster as a scheduler of TorchX."""
