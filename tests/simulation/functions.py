"""The functions as Lambda runs them: environments, invocations, time-outs, retries, dead letters.

The handlers are the real ones. Each environment imports its handler anew, as a process does.
"""

from __future__ import annotations

import ast
import importlib
import json
import marshal
import os
import pkgutil
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from types import CodeType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from unittest.mock import patch

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel

import muster.control
import muster.options.elastic.control
import muster.options.hyperpod.control
import muster.options.places.control
from muster.client.aws import recorded_runs
from muster.client.runs import run_list, run_progress
from muster.contract.document import StoredDocument
from muster.contract.errors import MusterError
from muster.control.aws.clients import Clients, Service
from muster.control.aws.task_tokens import TokenNotSentError
from muster.control.runtime import clock as control_clock
from muster.control.runtime import function, parallel
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.settle import UnfinishedError
from muster.control.stop import StillRunningError
from muster.options.places.control.place_clients import PlaceClients
from tests.memory.cloud import ACCOUNT, REGION
from tests.simulation.defects import ROOT, source
from tests.simulation.kernel import Activity, Killed
from tests.simulation.places import place_clients
from tests.simulation.transitions import of_answer
from tests.support.handlers import handler_path

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")
R = TypeVar("R")

BUS, PREFIX = "muster-bus", "muster"
MACHINE_ARN = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:muster"
TIMEOUTS = {
    "plan": 240,
    "admit": 240,
    "attempt": 240,
    "react": 300,
    "look": 300,
    "settle": 900,
    "stop": 900,
    "sweep": 900,
    "start": 240,
    "notify": 240,
    "timer": 900,
    "scale": 900,
}
"""In seconds, as infra/functions/function_table.py has them; tests/infra compares the two."""
RETRY_SECONDS = (60.0, 120.0)
"""Lambda: the waits before the two retries of an asynchronous event."""
_SLOW_PACE = 25.0
"""A function that is slow enough to meet its time-out, however long that is."""
_COLD_SECONDS = 0.4
_PACE = 0.02
_PACES = (_PACE, _PACE, _PACE, 0.004, 0.1, 0.6, 2.5)
_SKEWS = (0.0, 0.0, 0.0, -0.7, 0.4, 2.0, -3.0)
SKEW_MAX = 3.0
"""In seconds: how far a function's clock is off."""
_ENVIRONMENT = {
    "MUSTER_BUCKET": "bucket",
    "MUSTER_JOB_PREFIX": PREFIX,
    "MUSTER_BUS": BUS,
    "MUSTER_REPLICA_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/replica",
    "MUSTER_DEFAULTS": "{}",
    "MUSTER_LAUNCHES_PER_SECOND": "10",
    "MUSTER_TIMER_FUNCTION_ARN": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:timer",
    "MUSTER_TIMER_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/timer",
    "MUSTER_SCALE_FUNCTION_ARN": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:scale",
    "MUSTER_STATE_MACHINE_ARN": MACHINE_ARN,
    "MUSTER_LAUNCHER_ROLE_ARN": f"arn:aws:iam::{ACCOUNT}:role/launcher",
    "MUSTER_TOPIC_ARN": f"arn:aws:sns:{REGION}:{ACCOUNT}:people",
}
# What a function may raise or log when AWS fails; everything else is an error in Muster.
_EXPECTED = (
    *(ClientError, BotoCoreError, MusterError, OutOfTimeError, StillRunningError, UnfinishedError),
    *(TokenNotSentError, ConnectionError),
)


class Cause(NamedTuple):
    """Why an invocation failed, for Step Functions and for the judge."""

    error: str
    text: str
    injected: bool
    """Whether the simulation did it: a crash, a time-out, an S3 that fails."""


class Invocation:
    """One call of a function. It lives on when its caller does not."""

    can_crash = True

    def __init__(self, fleet: Fleet, function_name: str, name: str, environment: Environment) -> None:
        self.fleet = fleet
        self.function_name = function_name
        self.name = name
        self.label = name.partition("(")[2].rpartition(")")[0]
        self.meets_faults = self.label != "late sweep"
        self.environment = environment
        self.pace = environment.pace
        self.deadline = fleet.world.kernel.seconds + TIMEOUTS[function_name]
        self.activities: list[Activity] = []
        self.ended: Cause | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it may still act."""
        return self.ended is None and not self.activities[0].ended

    def check(self) -> None:
        if self.ended is not None:
            raise Killed

    def crash(self) -> None:
        """The process is gone, in the middle of what it does."""
        self.fleet.world.reach(f"crash: {self.function_name}")
        self.end(Cause("Lambda.Unknown", "Runtime exited", injected=True))
        raise Killed

    def end(self, cause: Cause) -> None:
        if self.ended is None:
            self.ended = cause
            kernel = self.fleet.world.kernel
            for activity in self.activities:
                if activity is not kernel.current:
                    kernel.kill(activity)

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self.deadline - self.fleet.world.kernel.seconds) * 1000))


@dataclass
class Environment:
    """A process of a function: a module of its own, at most one invocation at a time."""

    handler: Callable[[dict[str, Any], Any], Any]
    generation: int
    version: Version
    skew: float
    pace: float
    fresh: bool = True


class Version(StrEnum):
    THIS = "this version"
    NEXT = "the next version"
    """It adds a field to every stored document and to every answer, as a later version of Muster may."""


NEW_FIELD = "added_by_the_next_version"


class Fleet:
    def __init__(self, world: World) -> None:
        self.world = world
        self.variables: dict[str, str] = {}
        self._generations: Counter[str] = Counter()
        self._versions: dict[str, Version] = {}
        self._idle: dict[str, list[Environment]] = {}

    def deploy(self, version: Version, **variables: str) -> None:
        """New code and variables, one function after the other; what runs goes on, what is idle ends."""
        self.variables |= variables
        for name in TIMEOUTS:
            lag = self.world.draws.pick(f"deploy {version}/{name}", (0.0, 0.0, 3.0, 20.0))
            self.world.kernel.after(lag, lambda name=name: self._replace(name, version))

    def _replace(self, name: str, version: Version) -> None:
        self._generations[name] += 1
        self._versions[name] = version
        self._idle.pop(name, None)

    def begin(self, name: str, event: Any, label: str, then: Callable[[Any, Cause | None], None]) -> Invocation:
        """Invoke a function; `then` gets its answer, or why it failed."""
        world = self.world
        draws = world.draws
        numbered = draws.number(f"{name}({label})")
        environment = self._environment(name, numbered)
        invocation = Invocation(self, name, numbered, environment)

        def run() -> None:
            answer, cause = self._run(invocation, event)
            if cause is not None:
                world.judge.invocation_failed(invocation, cause)
            elif (transition := of_answer(name, answer)) is not None:
                world.reach(transition)
                if transition.startswith("attempt: held"):
                    world.judge.held(invocation.label)
            if cause is None and environment.generation == self._generations[name]:
                self._idle.setdefault(name, []).append(environment)
            if world.tracing:
                world.tell(numbered, f"failed: {cause.error}: {cause.text}" if cause else f"answers {answer}")
            then(answer, cause)

        invocation.activities.append(
            world.kernel.spawn(numbered, run, _COLD_SECONDS if environment.fresh else 0.0, owner=invocation)
        )
        environment.fresh = False
        world.kernel.at(invocation.deadline, lambda: self._time_out(invocation))
        broken = world.scenario.is_broken(name) and invocation.meets_faults
        if broken or draws.chance(f"{numbered}/crash at once", 0.004):
            invocation.ended = Cause("Lambda.Unknown", "Runtime exited", injected=True)
        if world.tracing:
            world.tell(numbered, f"begins: {_brief(event)}")
        return invocation

    def _time_out(self, invocation: Invocation) -> None:
        main = invocation.activities[0]
        if not main.ended:
            self.world.reach(f"time-out: {invocation.function_name}")
            invocation.end(Cause("Sandbox.Timedout", "Task timed out", injected=True))

    def _run(self, invocation: Invocation, event: Any) -> tuple[Any, Cause | None]:
        world = self.world
        try:
            invocation.check()
            answer = invocation.environment.handler(marshal.loads(marshal.dumps(event)), invocation)  # noqa: S302 - a copy
            invocation.check()
        except Killed:
            return None, invocation.ended or Cause("Lambda.Unknown", "ended", injected=True)
        except Exception as error:
            self.saw(invocation, error)
            return None, Cause(type(error).__name__, str(error), injected=_is_injected(error, world))
        if invocation.ended is not None:
            return None, invocation.ended
        more = {NEW_FIELD: 1} if invocation.environment.version is Version.NEXT and isinstance(answer, dict) else {}
        return json.loads(json.dumps({**answer, **more} if more else answer)), None

    def saw(self, invocation: Invocation, error: BaseException | None) -> None:
        """A function raised or logged an error: is it one of AWS's?"""
        self.world.tell(invocation.name, f"raised {type(error).__name__}: {error}")
        if error is not None and _is_injected(error, self.world):
            cause = Cause(type(error).__name__, str(error), injected=True)
            self.world.judge.invocation_failed(invocation, cause)
        if error is not None and not isinstance(error, (*_EXPECTED, Killed)):
            self.world.violate("unexpected error", f"{invocation.name} raised {type(error).__name__}: {error}")

    def _environment(self, name: str, numbered: str) -> Environment:
        idle = self._idle.get(name)
        if idle:
            return idle.pop()
        draws = self.world.draws
        variables = {key: value for key, value in {**_ENVIRONMENT, **self.variables}.items() if value}
        handler = _load(name, self.world, variables)
        pace = draws.pick(f"{numbered}/pace", _PACES)
        if draws.chance(f"{numbered}/slow", 0.008):
            pace = _SLOW_PACE
        skew = draws.pick(f"{numbered}/skew", _SKEWS)
        version = self._versions.get(name, Version.THIS)
        return Environment(handler, self._generations[name], version, skew, pace)


def _is_injected(error: BaseException, world: World) -> bool:
    """Whether the failure of S3 alone explains an error: no function works without its documents."""
    if isinstance(error, ClientError):
        return error.operation_name in {"GetObject", "PutObject", "HeadObject", "ListObjectsV2", "DeleteObject"}
    return isinstance(error, BotoCoreError) and "s3" in str(error)


def _brief(event: Any) -> str:
    text = json.dumps(event, default=str)
    if isinstance(event, dict) and "detail" in event:
        detail = event["detail"]
        keys = ("TrainingJobName", "TrainingJobStatus", "SecondaryStatus", "name", "status")
        text = str({key: detail[key] for key in keys if key in detail})
    return text[:200]


# --- loading handlers -----------------------------------------------------------------------------


class _Handler(NamedTuple):
    """A handler's module, before a process has imported it."""

    shared: dict[str, Any]
    """Its imports and classes: the same in every process."""
    code: CodeType
    """All else."""


@cache
def _handler(name: str) -> _Handler:
    path = handler_path(name)
    tree = ast.parse(source(path))
    shared = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom | ast.ClassDef)]
    # Their annotations are texts, as in the module.
    futures = [one for one in shared if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    own = [*futures, *(one for one in tree.body if one not in shared)]
    module = ModuleType(f"muster.lambdas.{name}")
    module.__file__ = str(ROOT / path)
    # A model of a handler's own finds its annotations by its module's name.
    with patch.dict(sys.modules, {module.__name__: module}):
        exec(compile(ast.Module([*shared], []), path, "exec"), vars(module))  # noqa: S102
        for found in vars(module).values():
            if isinstance(found, type) and found.__module__ == module.__name__ and issubclass(found, BaseModel):
                found.model_rebuild()
    return _Handler(vars(module), compile(ast.Module(own, []), path, "exec"))


@cache
def _encoded(variables: tuple[tuple[str, str], ...]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in variables}


_opening: list[World] = []


def _load(name: str, world: World, variables: dict[str, str]) -> Callable[[dict[str, Any], Any], Any]:
    """Import a handler as Lambda does: with its variables set, in a module of its own."""
    handler = _handler(name)
    module = dict(handler.shared)
    # What differs between schedules comes from here, see `installed`.
    module |= {other: vars(function)[other] for other in ("logger", "metrics") if other in module}
    # Setting the variables one by one would take longer than all that the handler does with them.
    environ: Any = os.environ
    saved, environ._data = environ._data, _encoded(tuple(variables.items()))
    _opening.append(world)
    try:
        exec(handler.code, module)  # noqa: S102
    finally:
        environ._data = saved
        _opening.pop()
    return module["handler"]  # type: ignore[no-any-return]


class SimulatedClients:
    """The clients that a function opened, and no others."""

    def __init__(self, world: World, services: tuple[Service, ...]) -> None:
        self._world = world
        for service in services:
            setattr(self, service, world.cloud.client(service))

    def drop_connections(self) -> None:
        """Nothing: it has none."""

    def part(self, kind: Any) -> Any:
        return place_clients(self._world.cloud) if kind is PlaceClients else SimulatedClusterClients(self._world)

    def sagemaker_in(self, credentials: Any) -> Any:
        return self._world.cloud.client("sagemaker", credentials["AccessKeyId"])


class SimulatedClusterClients:
    """With what a function calls clusters."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def eks(self) -> Any:
        return self._world.cloud.client("eks")

    def transport(self, endpoint: str, _authority: str) -> Any:
        return self._world.cloud.transport(endpoint)

    def token(self, eks_cluster: str) -> str:
        return self._world.cloud.kubernetes.token(eks_cluster)


# --- in place of the machine ------------------------------------------------------------------------


class SimulatedClock:
    """The control plane's clock: the kernel's time, and each process's own error."""

    def __init__(self, world: World) -> None:
        self._kernel = world.kernel

    def utc_now(self) -> datetime:
        now = self._kernel.now()
        activity = self._kernel.current
        owner = None if activity is None else activity.owner
        skew = owner.environment.skew if isinstance(owner, Invocation) else 0.0
        return now + timedelta(seconds=skew) if skew else now

    def monotonic(self) -> float:
        return self._kernel.seconds

    def sleep(self, seconds: float) -> None:
        self._kernel.sleep(seconds)
        activity = self._kernel.current
        if activity is not None and isinstance(activity.owner, Invocation):
            activity.owner.check()


class SimulatedPool:
    """In place of a pool of threads: activities of the same invocation."""

    def __init__(self, world: World) -> None:
        self._kernel = world.kernel
        self._begun: list[Activity] = []

    def __enter__(self) -> SimulatedPool:
        return self

    def __exit__(self, *_: object) -> None:
        for activity in self._begun:
            self._kernel.join(activity)

    def submit(self, work: Callable[[T], R], item: T) -> SimpleNamespace:
        """Begin; the answer's `result()` is there once the pool is left."""
        current = self._kernel.current
        assert current is not None
        owner = current.owner
        activity = self._kernel.spawn(current.name, lambda: work(item), owner=owner, is_asked=True)
        if isinstance(owner, Invocation):
            owner.activities.append(activity)
        self._begun.append(activity)

        def result() -> R:
            if activity.error is not None:
                raise activity.error
            value: R = activity.value
            return value

        return SimpleNamespace(result=result)


class SerialPool:
    """In place of a client's pool of threads: one after the other."""

    def __enter__(self) -> SerialPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return map(work, items)


class SilentLogger:
    """In place of Powertools' logger; what it is told belongs to the trace."""

    def __init__(self, world: World) -> None:
        self._world = world

    def inject_lambda_context(self, **_: object) -> Callable[[T], T]:
        return lambda handler: handler

    def append_keys(self, **_: object) -> None:
        pass

    def _log(self, message: str, **more: Any) -> None:
        if self._world.tracing:
            self._world.tell(self._world.current_name, f"{message} {more.get('extra', '')}")

    info = warning = error = _log

    def exception(self, message: str, **_: Any) -> None:
        error = sys.exc_info()[1]
        activity = self._world.kernel.current
        if activity is not None and isinstance(activity.owner, Invocation):
            self._world.fleet.saw(activity.owner, error)


class SilentMetrics:
    def log_metrics(self, handler: T) -> T:
        return handler

    def add_metric(self, **_: object) -> None:
        pass


class SteadyRandom:
    """In place of `random` for pauses: the same ones in every replay, others in every process."""

    def __init__(self, world: World) -> None:
        self._world = world

    def seed(self) -> None:
        """Nothing: no process is resumed from a snapshot here."""

    def uniform(self, low: float, high: float) -> float:
        draws = self._world.draws
        return low + (high - low) * draws.share(draws.number(f"{self._world.current_name}/jitter"))


_parsed = StoredDocument.from_json.__func__  # type: ignore[attr-defined]


class _Reader:
    """In place of `StoredDocument.from_json`: the same bytes are parsed once, because documents are frozen."""

    def __init__(self) -> None:
        self._read: dict[tuple[type[StoredDocument], bytes | str], StoredDocument] = {}

    def __call__(self, kind: type[StoredDocument], body: bytes | str, uri: str) -> StoredDocument:
        found = self._read.get((kind, body))
        if found is None:
            found = self._read[kind, body] = _parsed(kind, body, uri)
        return found


@contextmanager
def installed(world: World) -> Iterator[None]:
    """The control plane with the simulation in place of boto3, threads, logs and time."""
    real_logger, real_metrics = function.logger, function.metrics
    logger, metrics = SilentLogger(world), SilentMetrics()
    replaced: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, value: Any) -> None:
        replaced.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    for module in _modules(real_logger, real_metrics):
        for name, real, stand_in in (
            ("logger", real_logger, logger),
            ("metrics", real_metrics, metrics),
            ("random", random, SteadyRandom(world)),
        ):
            if vars(module).get(name) is real:
                put(module, name, stand_in)
    put(function, "single_metric", lambda *_, **__: nullcontext())
    put(parallel, "ThreadPoolExecutor", lambda **_: SimulatedPool(world))
    for module in (recorded_runs, run_list, run_progress):
        put(module, "ThreadPoolExecutor", lambda **_: SerialPool())
    put(parallel, "random", SteadyRandom(world))
    opened = classmethod(lambda _, *services: SimulatedClients(_opening[-1], services))
    read = classmethod(_Reader())
    try:
        with (
            control_clock.replaced(SimulatedClock(world)),
            patch.object(Clients, "opened", opened),
            patch.object(StoredDocument, "from_json", read),
        ):
            yield
    finally:
        for module, name, value in reversed(replaced):
            setattr(module, name, value)


@cache
def _modules(*_: object) -> tuple[Any, ...]:
    """The modules of the control plane that log, count or draw: all are imported now."""
    parts = [
        muster.control,
        muster.options.elastic.control,
        muster.options.hyperpod.control,
        muster.options.places.control,
    ]
    for part in parts:
        for one in pkgutil.walk_packages(part.__path__, f"{part.__name__}."):
            importlib.import_module(one.name)
    heads = tuple(part.__name__ for part in parts)
    found = [module for name, module in list(sys.modules.items()) if name.startswith(heads)]
    return tuple(module for module in found if {"logger", "metrics", "random"} & vars(module).keys())
