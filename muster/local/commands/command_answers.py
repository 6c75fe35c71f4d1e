"""The options that the commands share, and their answers with `--json`, as stable as those of `muster` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from pydantic.fields import FieldInfo
from rich.console import Console

from muster.contract.document import Document
from muster.contract.training.clusters import Cluster
from muster.local.cloud_state import DEFAULT_STATE
from muster.local.faults import FaultReport
from muster.local.local_cloud import LocalCloud

STATE_HELP = "Directory with the state of the embedded cloud."
StateOption = Annotated[Path, typer.Option("--state", help=STATE_HELP)]
ShellStateOption = Annotated[
    Path | None,
    typer.Option("--state", help=f"{STATE_HELP[:-1]}; default: of the one that this shell uses, or {DEFAULT_STATE}."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT = DEFAULT_STATE


def field_option(name: str, field: FieldInfo, condition: str = "") -> Parameter:
    """The option of a field of a model, with those of its limits that Typer has words for; the model checks them all.

    `condition` stands before its description.
    """
    limits = {name: getattr(rule, name) for rule in field.metadata for name in ("ge", "le") if hasattr(rule, name)}
    option = typer.Option(help=f"{condition}{field.description}", min=limits.get("ge"), max=limits.get("le"))
    default = Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[field.annotation, option])


def with_parameters(command: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """`command`, of which Typer sees these parameters."""
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(command)["__signature__"] = Signature(parameters)
    return command


def print_either(answer: Document, lines: Iterable[str], *, as_json: bool) -> None:
    """`answer` as JSON on one line of standard output, or else the lines that say the same."""
    for line in [answer.to_line()] if as_json else lines:
        typer.echo(line)


def busy(what: str) -> AbstractContextManager[object]:
    """Show `what` while it is done, on standard error if that is a terminal."""
    return Console(stderr=True).status(f"{what} …")


class CloudUp(Document):
    """An embedded cloud that runs."""

    endpoint: str
    pid: int
    region: str
    account_id: str
    running_jobs: tuple[str, ...] = Field(description="training jobs that have not ended")
    clusters: tuple[Cluster, ...] = Field(description="the HyperPod clusters")
    cluster_jobs: tuple[str, ...] = Field(description="their jobs that have not ended, as namespace/name")
    places: dict[str, str] = Field(description="the endpoints of its other places")
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
            clusters=cloud.state.clusters.clusters,
            cluster_jobs=tuple(cloud.cluster_jobs()),
            places={name: place.endpoint for name, place in cloud.state.places.items()},
            ca_file=str(cloud.state.ca_file),
            log=str(cloud.directory.log),
        )


class CloudDown(Document):
    """An embedded cloud that was stopped."""

    endpoint: str


class CloudVariables(Document):
    """The variables with which a process reaches the embedded cloud."""

    set: dict[str, str]
    unset: tuple[str, ...] = Field(description="variables that lead to another endpoint")


class FaultList(Document):
    """The faults that were added."""

    faults: tuple[FaultReport, ...]


class FaultsCleared(Document):
    """Faults that were removed."""

    cleared: tuple[int, ...] = Field(description="their numbers")
