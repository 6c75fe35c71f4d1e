"""The simulation of the control plane runs functions with the time-outs and retries that the stack gives them."""

from __future__ import annotations

from infra.functions.function_table import FUNCTIONS
from infra.functions.handler_function import ASYNC_RETRIES
from tests.simulation.functions import RETRY_SECONDS, TIMEOUTS


def test_the_simulated_functions_are_the_stack_s() -> None:
    assert {row.name: row.timeout_seconds for row in FUNCTIONS} == TIMEOUTS
    assert len(RETRY_SECONDS) == ASYNC_RETRIES
