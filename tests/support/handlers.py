"""The handlers as Lambda loads them: the environment is set, the module is imported, `handler` is called."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from muster.control.aws.clients import Clients, Service
from muster.control.runtime.function import metrics
from tests.memory.cloud import ACCOUNT, REGION
from tests.memory.harness import LAUNCHER_ROLE, ROLE, ControlHarness, MemoryClients
from tests.support.source_patch import ROOT

Handler = Callable[[dict[str, Any]], dict[str, Any]]
ENVIRONMENT = {
    "MUSTER_REPLICA_ROLE_ARN": ROLE,
    "MUSTER_DEFAULTS": '{"tags": {"team": "a"}}',
    "MUSTER_LAUNCHES_PER_SECOND": "10",
    "MUSTER_TIMER_FUNCTION_ARN": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:timer",
    "MUSTER_TIMER_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/timer",
    "MUSTER_SCALE_FUNCTION_ARN": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:scale",
    "MUSTER_STATE_MACHINE_ARN": f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:muster",
    "MUSTER_LAUNCHER_ROLE_ARN": LAUNCHER_ROLE,
    "MUSTER_TOPIC_ARN": f"arn:aws:sns:{REGION}:{ACCOUNT}:people",
}

_PATHS = sorted([*ROOT.glob("lambdas/[a-z]*.py"), *ROOT.glob("muster/options/*/lambdas/[a-z]*.py")])
HANDLERS = {
    path.stem: "muster." + ".".join(path.with_suffix("").relative_to(ROOT).parts).removeprefix("muster.")
    for path in _PATHS
}
"""The modules of all handlers, by the names of their functions."""


def handler_path(name: str) -> str:
    """The file of a handler."""
    return next(str(path.relative_to(ROOT)) for path in _PATHS if path.stem == name)


@dataclass(frozen=True)
class Invocation:
    """Lambda's context."""

    function_name: str = "muster"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:muster"
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        """A function's whole time."""
        return 900_000


def loader(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Handler]:
    """Imports a handler anew, with more variables in its environment.

    A handler names the services whose clients are to be made before the first event; it has these and no others.
    """

    def opened(_: type[Clients], *services: Service) -> Clients:
        return MemoryClients(harness.cloud, services)

    monkeypatch.setattr(Clients, "opened", classmethod(opened))
    # Powertools reads the namespace when it is imported.
    monkeypatch.setattr(metrics.provider, "namespace", "Muster")
    monkeypatch.setattr(metrics.provider, "service", "muster")

    def load(name: str, **variables: str) -> Handler:
        for variable, value in {**harness.environment, **ENVIRONMENT, **variables}.items():
            monkeypatch.setenv(variable, value)
        spec = importlib.util.find_spec(HANDLERS[name])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return lambda event: dict(module.handler(event, Invocation()))

    return load
