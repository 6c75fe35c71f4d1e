"""The logs of jobs in places: in the log group of training jobs of their region."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from muster.client.client_errors import ClientError
from muster.client.logs.log_lines import LogSource
from muster.options.places.contract.outposts import DeployedPlaces, Place

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.client.logs.log_lines import LogQuery
    from muster.contract.run.attempt import Attempt

_Attempts = Callable[[], Mapping[int, Iterable["Attempt"]]]


class PlaceLogsError(ClientError):
    """The lines of jobs in another account cannot be read with the credentials of home."""

    def __init__(self, run: str, place: str, account: str, region: str) -> None:
        super().__init__(
            f"The lines of the replicas of {run} in {place} are in account {account}: with a profile of that account, "
            f"run `aws logs tail /aws/sagemaker/TrainingJobs --region {region} --log-stream-name-prefix JOB`, where "
            f"`muster status {run} --json` has the names of the jobs."
        )


class PlaceLogs:
    """Those of one run. `attempts` looks at the run's attempts: they say in which places it has had jobs."""

    are_all = False

    def __init__(self, cloud: Cloud, run: str, attempts: _Attempts) -> None:
        self._run = run
        self._account = cloud.stack.account
        self._attempts = attempts
        stack = cloud.stack
        deployed = (
            DeployedPlaces.from_json(stack.places, f"the output Places of {stack.name}").places if stack.places else ()
        )
        self._places: Mapping[str, Place] = {place.name: place for place in deployed}

    def _used(self, attempts: Mapping[int, Iterable[Attempt]]) -> dict[str, Place]:
        names = {one.where.place for own in attempts.values() for one in own if one.where and one.has_proven_job}
        return {name: place for name, place in sorted(self._places.items()) if name in names}

    def sources(self, query: LogQuery) -> Collection[LogSource]:
        """The log groups of the places of this account in which the run has had jobs."""
        regions = {place.region for place in self._used(self._attempts()).values() if place.account == self._account}
        return [query.source._replace(region=region) for region in sorted(regions)]

    def missing(self, attempts: _Attempts) -> ClientError | None:
        """What to say of replicas in other accounts."""
        for name, place in self._used(attempts()).items():
            if place.account != self._account:
                return PlaceLogsError(self._run, name, place.account, place.region)
        return None
