"""The control plane of the unit tests, for faults that are tried at every call."""

from tests.unit.control.conftest import harness, row

__all__ = ["harness", "row"]
