"""The services of one account and region together, and clients of them shaped like boto3's."""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from botocore import xform_name
from botocore.hooks import HierarchicalEmitter
from botocore.paginate import Paginator

from tests.memory import models
from tests.memory.calls import Calls, Operation
from tests.memory.clock import VirtualClock
from tests.memory.events import Events
from tests.memory.functions import Functions
from tests.memory.hyperpod import HyperPodClusters
from tests.memory.kubernetes import Kubernetes
from tests.memory.logs import Logs
from tests.memory.notifications import Notifications
from tests.memory.places import OUTPOSTS, MemoryPlace, MemoryPlaceClients
from tests.memory.s3 import S3
from tests.memory.scheduler import Scheduler
from tests.memory.sns import Sns
from tests.memory.sqs import Sqs
from tests.memory.sts import Sts
from tests.memory.training import Training
from tests.memory.workflow import Workflow

ACCOUNT = "123456789012"
REGION = "us-east-1"


class MemoryCloud:
    """An AWS account with one bucket and one state machine. Nothing of it outlives the object.

    `tries` is how often a client sends a request that meets passing errors, 6 for the control plane's clients: with 1
    the code under test sees every fault itself. `seed` decides identifiers and jitter.
    """

    def __init__(
        self, bucket: str = "bucket", *, tries: int = 1, seed: int = 0, clock: VirtualClock | None = None
    ) -> None:
        self.bucket = bucket
        self.clock = clock or VirtualClock()
        self.calls = Calls(self.clock, tries, seed)
        self.notifications = Notifications(self.clock, ACCOUNT, REGION, seed)
        self.s3 = S3(self.clock, ACCOUNT)
        self.training = Training(self.clock, self.notifications, ACCOUNT, REGION)
        self.workflow = Workflow(self.clock, self.notifications, ACCOUNT, REGION)
        self.events = Events(self.clock)
        self.scheduler = Scheduler(self.clock, ACCOUNT, REGION)
        self.sns = Sns()
        self.sqs = Sqs(self.clock)
        self.functions = Functions()
        self.sts = Sts(self.clock)
        self.logs = Logs(self.clock)
        self.hyperpod = HyperPodClusters(ACCOUNT, REGION)
        self.kubernetes = Kubernetes(self.clock, self.calls, ACCOUNT, REGION)
        self.s3.add_bucket(bucket)
        self.places: dict[str, MemoryPlace] = {}
        self.prices: dict[tuple[str, str], float] = {}
        """Dollars for an hour, by region and instance type."""
        self._operations: dict[str, dict[str, Operation]] = {
            "s3": self.s3.operations,
            "sagemaker": {**self.training.operations, **self.hyperpod.operations},
            "stepfunctions": self.workflow.operations,
            "events": self.events.operations,
            "scheduler": self.scheduler.operations,
            "sns": self.sns.operations,
            "sqs": self.sqs.operations,
            "lambda": self.functions.operations,
            "sts": self.sts.operations,
            "logs": self.logs.operations,
            "eks": self.kubernetes.operations,
        }

    def add_places(self) -> None:
        """The outposts of `tests.memory.places`: one of this account, one of another."""
        self.places = {name: MemoryPlace(self, at) for name, at in OUTPOSTS.items()}
        self._operations["s3"] = self.s3.in_region(REGION).operations

    def place_clients(self) -> MemoryPlaceClients:
        """With what a function calls the places."""
        return MemoryPlaceClients(self, lambda service, found: MemoryClient(service, self.calls, found))

    def client(self, service: str, access_key: str | None = None) -> Any:
        """A client, as `boto3.client(service)`; of every operation that this AWS has. `access_key`: of a session."""
        return MemoryClient(service, self.calls, self.operations_of(service, access_key))

    def operations_of(self, service: str, access_key: str | None = None) -> dict[str, Operation]:
        """What a service does, for a caller with the credentials of a session where there is an `access_key`."""
        operations = self._operations[service]
        if access_key is None:
            return operations
        return {name: self.sts.in_session(access_key, name, one) for name, one in operations.items()}


class MemoryClient:
    """Methods by the names of boto3's, its paginators, and its event in which a caller can complete parameters."""

    def __init__(self, service: str, calls: Calls, operations: Mapping[str, Operation]) -> None:
        self._service = service
        self.meta = SimpleNamespace(events=HierarchicalEmitter())
        self._operations = {xform_name(name): name for name in operations}
        self._methods: dict[str, Callable[..., dict[str, Any]]] = {
            xform_name(name): partial(self._call, calls, name, operation) for name, operation in operations.items()
        }

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        if name.startswith("_") or name not in self._methods:
            message = f"the {self._service} in memory has no {name}"
            raise AttributeError(message)
        return self._methods[name]

    def get_paginator(self, name: str) -> Any:
        """botocore's own paginator over an operation."""
        operation = self._operations[name]
        pages = models.paginator_model(self._service).get_paginator(operation)
        method: Any = self._methods[name]
        return Paginator(method, pages, models.operation_model(self._service, operation))

    def _call(self, calls: Calls, name: str, operation: Operation, /, **parameters: Any) -> dict[str, Any]:
        model = models.operation_model(self._service, name)
        event = f"provide-client-params.{self._service}.{name}"
        for _, completed in self.meta.events.emit(event, params=parameters, model=model):
            parameters = completed or parameters
        return calls.call(self._service, name, operation, parameters)
