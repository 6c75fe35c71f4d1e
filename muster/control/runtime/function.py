"""The parts that all handlers use: logger, metrics, the environment, and what follows a restore from a snapshot."""

from __future__ import annotations

import gc
import importlib
import os
import random
import warnings
from collections.abc import Callable, Mapping
from typing import Annotated, Protocol, TypeVar

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.contract.errors import ConfigurationError
from muster.contract.names import METRICS_NAMESPACE, METRICS_SERVICE, RUN_MAX
from muster.control.runtime.clock import TimeBudget

Model = TypeVar("Model", bound=BaseModel)

# The share of a function's time that is reserved for writing its result: 45 seconds of Lambda's 900.
_RESERVE = 0.05
# Of a function that Lambda resumes from snapshots (SnapStart). A snapshot is taken after the import, before the first
# event: it holds nothing of a run, no connection of a call and no session of another role. botocore compares the end of
# the credentials in it with the clock before it signs a request. Lambda has the module in its own runtimes.
_INITIALIZATION, _FROM_SNAPSHOTS = "AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"
_HOOKS = "snapshot_restore_py"


class Context(Protocol):
    """The part of a Lambda invocation's context that Muster uses."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the function."""


class RunRequest(BaseModel):
    """What a function is asked to do for a run. Unknown fields are ignored: an execution keeps its old definition."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]


logger = Logger()
metrics = Metrics()
# Most invocations count nothing.
warnings.filterwarnings("ignore", message="No application metrics to publish")


def imported() -> None:
    """What has been imported stays: the collector, off until now (see lambdas), leaves it out and works from now on.

    The collector is left alone where it is on: by the handlers that a process imports after its first one.
    """
    # Otherwise all processes of a snapshot would pause for the same times between their tries.
    after_restore(random.seed)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def after_restore(action: Callable[[], object]) -> None:
    """Call `action` in each process that is resumed, before its first event; does nothing without snapshots.

    Raises:
        ModuleNotFoundError: snapshots are taken, and the runtime has no hooks: the version must not be published.
    """
    if os.environ.get(_INITIALIZATION) == _FROM_SNAPSHOTS:
        importlib.import_module(_HOOKS).register_after_restore(action)


def read_environment(model: type[Model], environment: Mapping[str, str] = os.environ) -> Model:
    """The function's environment.

    Raises:
        ConfigurationError: names every variable that is missing or wrong, at once.
    """
    try:
        return model.model_validate(dict(environment))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        message = f"The function's environment is not valid: {problems}. Deploy the stack again."
        raise ConfigurationError(message) from None


def count(name: str, amount: int = 1) -> None:
    """Add to a CloudWatch metric of the namespace Muster."""
    metrics.add_metric(name=name, unit="Count", value=amount)


def measure(name: str, value: float, *, job_prefix: str) -> None:
    """Add a value to a metric that has one series for the stack of this prefix, whichever function measures it."""
    service = {METRICS_SERVICE: job_prefix}
    with single_metric(name, MetricUnit.Count, value, namespace=METRICS_NAMESPACE, default_dimensions=service):
        pass


def time_left(context: Context) -> TimeBudget:
    """The time that the function has left, less a reserve for writing its result."""
    return TimeBudget.of(context.get_remaining_time_in_millis() / 1000 * (1 - _RESERVE))
