"""How every call is made: checked, logged, met by faults, carried out, answered."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from fnmatch import fnmatchcase
from http.client import responses
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from muster.local.faults import THROTTLED
from tests.memory import models
from tests.memory.clock import VirtualClock
from tests.memory.plain_data import copied

R = TypeVar("R")
Parameters: TypeAlias = Mapping[str, Any]
_THROTTLES = {
    *("Throttled", "Throttling", "ThrottlingException", "TooManyRequestsException", "SlowDown"),
    "RequestLimitExceeded",
}
_TRANSIENT_STATUSES = {500, 502, 503, 504}
_LONGEST_PAUSE_SECONDS = 20.0  # botocore's standard mode


class AwsError(Exception):
    """An error that a service answers; the caller gets it as botocore's ClientError."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    def as_client_error(self, operation: str) -> ClientError:
        """What boto3 raises for it."""
        # The answer to a HEAD has no body that could name a code.
        has_body = not operation.startswith("Head")
        code, message = (self.code, self.message) if has_body else (str(self.status), responses.get(self.status, ""))
        answer: Any = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": metadata(self.status),
        }
        return ClientError(answer, operation)


def refuse(code: str, message: str, status: int = 400) -> NoReturn:
    """Answer an error instead of carrying a call out."""
    raise AwsError(code, message, status) from None


class Operation(NamedTuple):
    """What a service does for an operation, and the parameters that it has. None: all that the model has."""

    effect: Callable[[Parameters], dict[str, Any]]
    """Its answer shares nothing with what the service keeps."""
    supported: Collection[str] | None = None
    status: int = 200


@dataclass(frozen=True)
class Call:
    """A request that reached AWS: every try of the SDK is one."""

    service: str
    operation: str
    parameters: Parameters
    at: datetime


@dataclass
class Fault:
    """What befalls the calls of an operation (a glob) for which `when` holds, after `skip` of them, `count` times.

    `delay_seconds` pass and `action` is done before the effect: an interleaved writer, for instance. `error` is raised
    instead of the effect, or, with `after_effect`, instead of the answer only. An AwsError reaches the caller as a
    ClientError, anything else (a lost connection, the end of the process) as it is. `count=None`: without end.
    """

    operation: str
    error: AwsError | BaseException | None = None
    after_effect: bool = False
    when: Callable[[Call], bool] = lambda _: True
    skip: int = 0
    count: int | None = 1
    delay_seconds: float = 0.0
    action: Callable[[], object] | None = None
    fired: int = field(default=0, init=False)


_THROTTLED = AwsError("ThrottlingException", "Rate exceeded")
THROTTLED_BY = {
    **{service: AwsError(*error) for service, error in THROTTLED.items()},
    "kubernetes": AwsError("TooManyRequests", "Too many requests, please try again later.", 429),
}
"""Services with another code or status."""


def throttle(operation: str, count: int | None = 1, when: Callable[[Call], bool] = lambda _: True) -> Fault:
    """Calls that come too fast, refused as each service does it."""
    return Fault(operation, _THROTTLED, when=when, count=count)


def server_error(
    operation: str,
    count: int | None = 1,
    *,
    code: str = "InternalFailure",
    status: int = 500,
    after_effect: bool = False,
) -> Fault:
    """A 5xx: the service fails."""
    return Fault(operation, AwsError(code, "Please try again.", status), after_effect, count=count)


def lost_answer(operation: str, count: int | None = 1) -> Fault:
    """The call is carried out, and the caller gets a 500 for it."""
    return server_error(operation, count, after_effect=True)


class Calls:
    """The one way into this AWS: its log, its faults, and the tries that an SDK makes."""

    def __init__(self, clock: VirtualClock, tries: int, seed: int) -> None:
        self.log: list[Call] = []
        """Every request that arrived, in order."""
        self.faults: list[Fault] = []
        """In the order in which they are looked at: of those that match, the first one not used up strikes."""
        self._clock = clock
        self._tries = tries
        self._random = random.Random(seed)  # noqa: S311 - jitter
        self._lock = threading.Lock()

    def inject(self, *faults: Fault) -> None:
        """Add faults behind those that are there."""
        self.faults.extend(faults)

    def counts(self) -> Counter[str]:
        """How often each operation was called since the last reset."""
        return Counter(call.operation for call in self.log)

    def of(self, operation: str) -> list[Parameters]:
        """The parameters of the calls of an operation."""
        return [call.parameters for call in self.log if call.operation == operation]

    def reset(self) -> None:
        """Forget the log and the faults."""
        with self._lock:
            self.log.clear()
            self.faults.clear()

    def call(self, service: str, name: str, operation: Operation, parameters: dict[str, Any]) -> dict[str, Any]:
        """Make a call as an SDK in standard mode does: passing errors are tried again, after a jittered pause.

        Raises:
            ParamValidationError: nothing was sent.
            ClientError: what the service answered to the last try.
        """
        models.check_parameters(service, name, parameters)
        if operation.supported is not None and (unknown := parameters.keys() - set(operation.supported)):
            message = f"{name} has no {', '.join(sorted(unknown))} here"
            raise NotImplementedError(message)
        tried = 0
        while True:
            try:
                return self._once(service, name, operation, parameters)
            except (ClientError, BotoCoreError) as error:
                tried += 1
                if tried >= self._tries or not is_passing(error):
                    raise
                with self._lock:
                    share = self._random.random()
                self._clock.sleep(share * min(2.0 ** (tried - 1), _LONGEST_PAUSE_SECONDS))

    def plain(self, service: str, name: str, parameters: Parameters, effect: Callable[[], R]) -> R:
        """One request, also of a service of which botocore has no model. An AwsError is raised as it is."""
        call = Call(service, name, copied(parameters), self._clock.now())
        with self._lock:
            self.log.append(call)
            fault = self._take(call)
        if fault is None:
            return effect()
        error = THROTTLED_BY.get(service, _THROTTLED) if fault.error is _THROTTLED else fault.error
        if error is not None:
            error = error.with_traceback(None)  # of many calls: it would keep the frames of all of them
        self._clock.sleep(fault.delay_seconds)
        if fault.action is not None:
            fault.action()
        if error is not None and not fault.after_effect:
            raise error
        answer = effect()
        if error is not None:
            raise error
        return answer

    def _once(self, service: str, name: str, operation: Operation, parameters: Parameters) -> dict[str, Any]:
        def effect() -> dict[str, Any]:
            if found := models.broken_limits(service, name, parameters):
                count = f"{len(found)} validation error{'s' if len(found) > 1 else ''} detected: "
                refuse("ValidationException", count + "; ".join(found))
            answer = operation.effect(copied(parameters))
            models.check_answer(service, name, answer)
            return answer

        try:
            answer = self.plain(service, name, parameters, effect)
        except AwsError as refused:
            raise refused.as_client_error(name) from None
        # A part of an object is a success of its own kind.
        status = 206 if "ContentRange" in answer else operation.status
        return {**answer, "ResponseMetadata": metadata(status, self._clock.now())}

    def _take(self, call: Call) -> Fault | None:
        for fault in self.faults:
            if fault.count == 0 or not fnmatchcase(call.operation, fault.operation) or not fault.when(call):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.fired += 1
            if fault.count is not None:
                fault.count -= 1
            return fault
        return None


def metadata(status: int, at: datetime | None = None) -> dict[str, Any]:
    """The part of an answer that botocore adds. `at`: the time of the service, which its answers say."""
    headers = {} if at is None else {"date": format_datetime(at, usegmt=True)}
    return {"HTTPStatusCode": status, "HTTPHeaders": headers, "RetryAttempts": 0}


def is_passing(error: ClientError | BotoCoreError) -> bool:
    """Whether an SDK in standard mode tries the call again."""
    if not isinstance(error, ClientError):
        return not isinstance(error, ParamValidationError)
    status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    return status in _TRANSIENT_STATUSES or error.response["Error"]["Code"] in _THROTTLES
