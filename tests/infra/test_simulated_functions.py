"""The simulation of the control plane runs functions with the time-outs and retries that the stack gives them."""

from __future__ import annotations

from tests.simulation.functions import RETRY_SECONDS, TIMEOUTS
from tests.support.template import FUNCTIONS, Template, function


def test_the_simulated_functions_are_the_stack_s(template: Template) -> None:
    assert {name.lower(): function(template, name)["Timeout"] for name in FUNCTIONS} == TIMEOUTS
    configurations = template.of_type("AWS::Lambda::EventInvokeConfig").values()
    assert {one["Properties"]["MaximumRetryAttempts"] for one in configurations} == {len(RETRY_SECONDS)}
