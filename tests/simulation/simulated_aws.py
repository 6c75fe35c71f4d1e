"""The AWS in memory as the simulation calls it: every call takes time, may meet a fault, and lets others run.

The services are those of tests.memory. What differs is the way in: calls wait in virtual time, a request of a form that
was checked before is not checked again, and an effect may come after its answer was lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from botocore import xform_name
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from botocore.hooks import HierarchicalEmitter
from botocore.paginate import Paginator

from muster.control.aws import clients
from muster.options.hyperpod.control.cluster_https import HttpAnswer
from tests.memory import models
from tests.memory.calls import AwsError, Operation, is_passing, metadata
from tests.memory.clock import VirtualClock
from tests.memory.cloud import MemoryCloud
from tests.memory.kubernetes import failure, operation
from tests.memory.plain_data import copied
from tests.simulation.faults import CONNECT_SECONDS, NOTHING, Faults
from tests.simulation.kernel import START, Kernel

R = TypeVar("R")

_TRIES = {"events": clients.EVENT_TRIES}
_LONGEST_PAUSE_SECONDS = 20.0

# The forms of requests and answers that were looked at: the services' names, the operations', and the fields.
_checked: set[tuple[Any, ...]] = set()
_limited: set[tuple[Any, ...]] = set()
_answered: set[tuple[Any, ...]] = set()


class Caller(Protocol):
    """Who makes a call: an invocation of a function, for instance."""

    name: str
    pace: float
    """How long a call takes, in seconds."""

    def check(self) -> None:
        """Raise where the caller has ended."""


class KernelClock(VirtualClock):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(START)
        self._kernel = kernel

    def now(self) -> datetime:
        return self._kernel.now()

    def utc_now(self) -> datetime:
        return self._kernel.now()

    def monotonic(self) -> float:
        return self._kernel.seconds

    def sleep(self, seconds: float) -> None:
        self._kernel.sleep(seconds)

    def at(self, due: datetime, action: Callable[[], None]) -> None:
        self._kernel.at((due - START).total_seconds(), action)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._kernel.after(seconds, action)


CAUGHT = {"Muster.Rerun", "Muster.RerunLater", "Muster.Stop"}
"""The errors that no failure is: the workflow catches them, and continues with their causes."""


class SimulatedCloud(MemoryCloud):
    """The services, with a clock that the kernel keeps, and calls that meet the faults of a schedule."""

    def __init__(self, kernel: Kernel, faults: Faults) -> None:
        super().__init__(clock=KernelClock(kernel))
        self.kernel = kernel
        self.faults = faults
        self.counts: Counter[str] = Counter()
        self.on_call: Callable[[str, str, str], None] | None = None
        """For the trace: what was called, with what, and what came of it."""
        self.on_stop: Callable[[str, str], None] = lambda *_: None
        """A job's name and who calls StopTrainingJob."""
        self.on_miss: Callable[[str], None] = lambda _: None
        """The name of a job that DescribeTrainingJob does not find."""
        self.on_object: Callable[[Caller, str, dict[str, Any]], None] = lambda *_: None
        """Who calls which operation of S3 in the stack's bucket, with what."""
        self.rewrite: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda _, parameters: parameters
        """What the code of another version writes instead."""
        self.is_direct = False
        """Whether calls take no time: those of a client that looks at the end, in threads of its own."""
        self._clients: dict[str, SimulatedClient] = {}

    def client(self, service: str, access_key: str | None = None) -> Any:
        if access_key is not None:
            return SimulatedClient(self, service, self.operations_of(service, access_key))
        if service not in self._clients:
            self._clients[service] = SimulatedClient(self, service, self.operations_of(service))
        return self._clients[service]

    # --- a request -------------------------------------------------------------------------------

    def _sent(self, service: str, name: str, parameters: dict[str, Any], effect: Callable[[], R]) -> R:
        """Send one request, which takes time and may meet a fault: its error is raised."""
        caller, faults = self._caller(), self.faults
        place = self.places.get(service.partition("@")[2])
        if place is not None and place.is_silent:
            self._wait(caller, CONNECT_SECONDS)
            self._tell(name, parameters, "no answer")
            place.check()
        fault = faults.of_call(caller, service, name, parameters) or NOTHING
        self._wait(caller, fault.before_seconds)
        if fault.crash == "before":
            self._tell(name, parameters, "the function crashes before the effect")
            fault.strike()
        answer: R | None = None
        if fault.late_seconds is not None:
            self._tell(name, parameters, f"takes effect {fault.late_seconds:.0f} s late")

            def late() -> None:
                faults.on_late(name, parameters)
                with suppress(ConnectionError, ConnectTimeoutError, ReadTimeoutError):
                    if not isinstance(effect(), AwsError):
                        self._tell(name, parameters, "done, late")

            self.kernel.after(fault.late_seconds, late)
        elif fault.error is None or fault.after_effect:
            answer = effect()
        if fault.crash == "after":
            self._tell(name, parameters, "the function crashes after the effect")
            fault.strike()
        self._wait(caller, fault.after_seconds)
        if fault.error is not None:
            when = "after the effect" if fault.after_effect else "instead of the effect"
            self._tell(name, parameters, f"{fault.error} {when}")
            raise fault.error.with_traceback(None)  # schedules share it
        assert answer is not None
        return answer

    def _caller(self) -> Caller:
        activity = self.kernel.current
        assert activity is not None
        caller: Caller = activity.owner
        caller.check()
        return caller

    def _wait(self, caller: Caller, seconds: float) -> None:
        self.kernel.sleep(caller.pace + seconds)
        caller.check()

    def _stops(self, job: str) -> None:
        current = self.kernel.current
        self.on_stop(job, "late" if current is None else current.name)

    def _tell(self, name: str, parameters: dict[str, Any], outcome: str) -> None:
        if self.on_call is not None:
            self.on_call(name, _shown(parameters), outcome)

    # --- a cluster's API ---------------------------------------------------------------------------

    def transport(self, url: str) -> SimulatedTransport:
        return SimulatedTransport(self, url)

    def request(self, url: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """Send one request to a cluster's API; the client under test tries again by itself.

        Raises:
            ConnectionError: there is no answer.
        """
        name, job = operation(method, path), _job_of(path, body)

        def effect() -> HttpAnswer:
            if name == "DeleteJob":
                self._stops(job)
            return self.kubernetes.answer(url, method, path, headers, body)

        self.counts[name] += 1
        parameters = {"TrainingJobName": job}
        try:
            answer = self._sent("kubernetes", name, parameters, effect)
        except AwsError as error:
            return failure(error.status, error.code, error.message)
        except (ConnectTimeoutError, ReadTimeoutError) as error:
            raise ConnectionError(str(error)) from None
        self._tell(name, parameters, str(answer.status))
        return answer

    # --- a call of an SDK ----------------------------------------------------------------------------

    def call(
        self, service: str, name: str, operation: Operation, parameters: dict[str, Any], place: str = ""
    ) -> dict[str, Any]:
        """Make a call as an SDK does: passing errors are tried again. `place`: where, if it is not home."""
        _check_once(service, name, parameters)
        if self.is_direct:
            found = self._effect(service, name, operation, parameters)
            return self._answer(service, name, parameters, operation, found)
        tries, tried = _TRIES.get(service, clients.TRIES), 0
        while True:
            try:
                return self._once(service, name, operation, parameters, place)
            except (ClientError, ConnectTimeoutError, ReadTimeoutError) as error:
                tried += 1
                silent = place != "" and self.places[place].is_silent
                if tried >= tries or not is_passing(error) or silent:
                    raise
            self.kernel.sleep(self.faults.pause(min(2.0 ** (tried - 1), _LONGEST_PAUSE_SECONDS)))

    def _once(
        self, service: str, name: str, operation: Operation, parameters: dict[str, Any], place: str
    ) -> dict[str, Any]:
        self.counts[name] += 1
        caller = self._caller()
        if service == "s3" and not place:
            self.on_object(caller, name, parameters)
        if name == "PutObject":
            parameters = self.rewrite(caller, parameters)
        try:
            asked = f"{service}@{place}" if place else service
            found = self._sent(asked, name, parameters, lambda: self._effect(service, name, operation, parameters))
        except AwsError as error:
            raise error.as_client_error(name) from None
        return self._answer(service, name, parameters, operation, found)

    def _effect(
        self, service: str, name: str, operation: Operation, parameters: dict[str, Any]
    ) -> dict[str, Any] | AwsError:
        if service != "s3" and (found := _limits_once(service, name, parameters)):
            return AwsError("ValidationException", "; ".join(found))
        if name == "StopTrainingJob":
            self._stops(parameters["TrainingJobName"])
        try:
            # A request is kept by one service only.
            return operation.effect(copied(parameters) if name == "CreateTrainingJob" else parameters)
        except AwsError as refused:
            if name == "DescribeTrainingJob":
                self.on_miss(parameters["TrainingJobName"])
            return refused

    def _answer(
        self,
        service: str,
        name: str,
        parameters: dict[str, Any],
        operation: Operation,
        answer: dict[str, Any] | AwsError,
    ) -> dict[str, Any]:
        if isinstance(answer, AwsError):
            self._tell(name, parameters, answer.code)
            raise answer.as_client_error(name)
        self._tell(name, parameters, "done")
        _check_answer_once(service, name, answer)
        status = 206 if "ContentRange" in answer else operation.status
        return {**answer, "ResponseMetadata": metadata(status)}


class SimulatedTransport:
    """The way to the API of one cluster (`muster.options.hyperpod.control.cluster_https.Transport`)."""

    def __init__(self, cloud: SimulatedCloud, url: str) -> None:
        self._cloud, self._url = cloud, url

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        return self._cloud.request(self._url, method, path, headers, body)


def _job_of(path: str, body: bytes | None) -> str:
    """The name of the object that a request is about."""
    name = urlsplit(path).path.rpartition("/")[2]
    return str(json.loads(body)["metadata"]["name"]) if body and b'"metadata"' in body else name


class SimulatedClient:
    """A client of one service, shaped like boto3's."""

    def __init__(self, cloud: SimulatedCloud, service: str, operations: dict[str, Operation], place: str = "") -> None:
        self._cloud, self._service, self._place = cloud, service, place
        self._operations = {xform_name(name): (name, operation) for name, operation in operations.items()}
        self._paginators: dict[str, Paginator[Any]] = {}

    @cached_property
    def meta(self) -> SimpleNamespace:
        """As boto3's clients have it; functions do not ask for it."""
        return SimpleNamespace(events=HierarchicalEmitter())

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        found = None if name.startswith("_") else self._operations.get(name)
        if found is None:
            message = f"the {self._service} in memory has no {name}"
            raise AttributeError(message)
        operation_name, operation = found
        cloud, service, place = self._cloud, self._service, self._place

        def method(**parameters: Any) -> dict[str, Any]:
            return cloud.call(service, operation_name, operation, parameters, place)

        vars(self)[name] = method
        return method

    def get_paginator(self, name: str) -> Any:
        """botocore's own paginator over an operation."""
        if name not in self._paginators:
            operation = self._operations[name][0]
            pages = models.paginator_model(self._service).get_paginator(operation)
            model = models.operation_model(self._service, operation)
            self._paginators[name] = Paginator(getattr(self, name), pages, model)
        return self._paginators[name]


def _check_once(service: str, name: str, parameters: dict[str, Any]) -> None:
    """Check the first request of each form, and every CreateTrainingJob of another form."""
    form = (service, name, *parameters)
    if form not in _checked:
        models.check_parameters(service, name, parameters)
        _checked.add(form)


def _limits_once(service: str, name: str, parameters: dict[str, Any]) -> list[str]:
    form = (service, name, *parameters)
    if form in _limited or (not (found := models.broken_limits(service, name, parameters))):
        _limited.add(form)
        return []
    return found


def _check_answer_once(service: str, name: str, answer: dict[str, Any]) -> None:
    form = (service, name, *answer)
    if form not in _answered:
        models.check_answer(service, name, answer)
        _answered.add(form)


_SHOWN = ("Key", "TrainingJobName", "taskToken", "executionArn", "NameContains", "Prefix", "name", "ResourceArn")


def _shown(parameters: dict[str, Any]) -> str:
    return next((str(parameters[name]).rpartition(":")[2][-60:] for name in _SHOWN if name in parameters), "")
