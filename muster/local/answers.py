"""What the commands of the embedded cloud print with `--json`; as stable as those of `muster` itself."""

from __future__ import annotations

from pydantic import Field

from muster.contract.document import Document
from muster.local.cloud import LocalCloud
from muster.local.faults import FaultReport


class CloudUp(Document):
    """An embedded cloud that runs."""

    endpoint: str
    pid: int
    region: str
    account_id: str
    running_jobs: tuple[str, ...] = Field(description="training jobs that have not ended")
    ca_file: str = Field(description="the certificate authority to trust")
    log: str

    @classmethod
    def of(cls, cloud: LocalCloud) -> CloudUp:
        """Ask `cloud`.

        Raises:
            DeadCloudError: it does not answer.
        """
        return cls(
            endpoint=cloud.endpoint,
            pid=cloud.state.pid,
            region=cloud.state.region,
            account_id=cloud.state.account_id,
            running_jobs=tuple(cloud.running_jobs()),
            ca_file=str(cloud.state.ca_file),
            log=str(cloud.directory.log),
        )


class CloudDown(Document):
    """An embedded cloud that was stopped."""

    endpoint: str


class CloudVariables(Document):
    """What turns a process towards the embedded cloud."""

    set: dict[str, str]
    unset: tuple[str, ...] = Field(description="variables that would lead elsewhere")


class FaultList(Document):
    """The faults that were asked for."""

    faults: tuple[FaultReport, ...]


class FaultsCleared(Document):
    """Faults that were struck out."""

    cleared: tuple[int, ...] = Field(description="their numbers")
