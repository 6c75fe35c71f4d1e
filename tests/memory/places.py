"""Places beside home: another region, or another account, whose services may be silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from muster.options.places.contract.outposts import DeployedPlaces, Outpost, Place
from tests.memory.calls import Operation, Parameters, refuse
from tests.memory.logs import Logs
from tests.memory.notifications import Notifications
from tests.memory.training import Training

if TYPE_CHECKING:
    from tests.memory.cloud import MemoryCloud

STACK, PREFIX = "stack", "muster"
ADDRESSES = (
    Place(name="oregon", region="us-west-2", account="123456789012"),
    Place(name="tokyo", region="ap-northeast-1", account="210987654321"),
)
PLACES = DeployedPlaces(stack=STACK, job_prefix=PREFIX, places=ADDRESSES)
OUTPOSTS = PLACES.outposts("aws")


class _Forwarded(Notifications):
    """The events of a place, on their way to home's bus with the account and region that they come from."""

    def __init__(self, cloud: MemoryCloud, at: Outpost) -> None:
        super().__init__(cloud.clock, at.account, at.region, seed=hash(at.region) % 1000)
        self._home = cloud.notifications
        self.held: list[dict[str, Any]] | None = None
        """Those of a place that is cut off."""
        self.on_event: Callable[[dict[str, Any]], None] = lambda _: None
        """Told of each event when it happens."""
        self.on_send = self._forward

    def _forward(self, event: dict[str, Any]) -> None:
        self.on_event(event)
        if self.held is not None:
            self.held.append(event)
        else:
            self._home.put(event)

    def release(self) -> None:
        held, self.held = self.held or [], None
        for event in held:
            self._home.put(event)


class MemoryPlace:
    """What an outpost has. A home's client does not reach it, nor one of it home."""

    def __init__(self, cloud: MemoryCloud, at: Outpost) -> None:
        self.at = at
        self.notifications = _Forwarded(cloud, at)
        self.training = Training(cloud.clock, self.notifications, at.account, at.region)
        self.logs = Logs(cloud.clock)
        self.answers_nothing = False
        """Of a silent place: whether it takes requests, and answers none, instead of refusing connections."""
        self.is_silent = False
        self.denies = False
        """Whether a policy of its account denies every call."""
        cloud.s3.add_bucket(at.bucket)
        cloud.s3.regions[at.bucket] = at.region
        cloud.sts.external_ids[at.launcher_role_arn] = at.external_id
        self._cloud = cloud

    def go_silent(self) -> None:
        """From now on nothing there answers, and its events do not arrive. Its jobs live on."""
        self.is_silent = True
        self.notifications.held = self.notifications.held or []

    def answer_again(self) -> None:
        """The place answers, and sends the events that it held."""
        self.is_silent = False
        self.notifications.release()

    def deny_access(self) -> None:
        """From now on its account refuses new sessions of the launcher role, and every call of the old ones."""
        self.denies = True
        self._cloud.sts.denied.add(self.at.launcher_role_arn)

    def allow_access(self) -> None:
        """Its account refuses nothing any more."""
        self.denies = False
        self._cloud.sts.denied.discard(self.at.launcher_role_arn)

    def operations(self, service: str, access_key: str) -> Mapping[str, Operation]:
        """What a service does there for a session of the outpost's launcher role."""
        found: Any = {"sagemaker": self.training, "s3": self._cloud.s3.in_region(self.at.region), "logs": self.logs}[
            service
        ]
        session = self._cloud.sts.in_session
        return {
            name: self._answered(session(access_key, name, one, role=self.at.launcher_role_arn), service)
            for name, one in found.operations.items()
        }

    @property
    def of_a_reader(self) -> Mapping[str, Operation]:
        """What CloudWatch Logs does there for a client."""
        return {name: self._answered(one, "logs") for name, one in self.logs.operations.items()}

    def _answered(self, operation: Operation, service: str) -> Operation:
        effect = operation.effect

        def answer(parameters: Parameters) -> dict[str, Any]:
            self.check()
            if self.denies:
                # S3 answers 403, services of JSON 400.
                code, status = ("AccessDenied", 403) if service == "s3" else ("AccessDeniedException", 400)
                refuse(code, "not authorized, with an explicit deny in a service control policy", status)
            return effect(parameters)

        return operation._replace(effect=answer)

    def check(self) -> None:
        """Raise where nothing answers."""
        if self.is_silent:
            kind = ReadTimeoutError if self.answers_nothing else ConnectTimeoutError
            raise kind(endpoint_url=self.at.region)


class MemoryPlaceClients:
    """With what a function calls places (`PlaceClients`)."""

    home_region = "us-east-1"

    def __init__(self, cloud: MemoryCloud, made: Callable[[str, Mapping[str, Operation]], Any]) -> None:
        self._cloud = cloud
        self._made = made

    @property
    def sts(self) -> Any:
        """STS at home."""
        return self._cloud.client("sts")

    def sagemaker(self, region: str, credentials: Any) -> Any:
        return self._client("sagemaker", region, credentials)

    def logs(self, region: str, credentials: Any) -> Any:
        return self._client("logs", region, credentials)

    def s3(self, region: str, credentials: Any) -> Any:
        return self._client("s3", region, credentials)

    def usd_per_hour(self, region: str, instance_type: str) -> float | None:
        """The price that the test has set."""
        return self._cloud.prices.get((region, instance_type))

    def _client(self, service: str, region: str, credentials: Any) -> Any:
        [place] = [one for one in self._cloud.places.values() if one.at.region == region]
        return self._made(service, place.operations(service, credentials["AccessKeyId"]))
