"""The model that training starts from: what a spec says under `model`, and what a job gets of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from muster.contract import names
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.channels import Channel, DataSource, HubAccessConfig, ModelAccessConfig, S3DataSource
from muster.contract.training.section import RequestPart
from muster.contract.training.values import LINE, S3Uri, Wording

MODEL_CHANNEL = "model"
MODEL_MOUNT = f"/opt/ml/input/data/{MODEL_CHANNEL}"

_ARN = r"^arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:"
_HubName = Annotated[
    str,
    # DescribeHubContent: HubContentName, HubName.
    Field(max_length=63, pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$"),
    Wording("letters, digits and hyphens between them"),
]
_SOURCES = ("run", "s3", "hub", "package")


class ModelSource(Document):
    """One of `run`, `s3`, `hub` and `package`.

    `run` and `hub` are found by Muster, which writes what it has found into `s3`: a folder, which ends with a slash, or
    one object.
    """

    run: Annotated[
        str | None,
        Field(max_length=names.RUN_MAX, pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$"),
        Wording("a run's name"),
    ] = Field(default=None, description="a run of this stack that has ended: its model, or its checkpoint")
    rank: int | None = Field(
        default=None, ge=0, lt=names.REPLICAS_MAX, description="with `run`: the replica whose checkpoint is meant"
    )
    s3: S3Uri | None = Field(default=None, description="a folder or an object in S3, in the stack's region")
    hub: _HubName | None = Field(default=None, description="a model in SageMaker Hub, by its name there")
    private_hub: _HubName | None = Field(default=None, description="with `hub`: asked before SageMakerPublicHub")
    accept_eula: bool | None = Field(default=None, description="with `hub`: accepts the licence of a gated model")
    hub_content_arn: Annotated[
        str | None, Field(max_length=255, pattern=LINE), Wording("one line, without a line break")
    ] = Field(default=None, description="with `private_hub`: the ARN of its reference, which Muster fills in")
    package: Annotated[
        str | None,
        Field(max_length=2_048, pattern=_ARN + r"model-package/\S+$"),
        Wording("arn:aws:sagemaker:region:123456789012:model-package/group/version"),
    ] = Field(default=None, description="a model package, whose training continues (SourceModelPackageArn)")
    package_group: Annotated[
        str | None,
        Field(max_length=2_048, pattern=_ARN + r"model-package-group/\S+$"),
        Wording("arn:aws:sagemaker:region:123456789012:model-package-group/name"),
    ] = Field(default=None, description="with `package`: the group of the new package; default the package's own")

    def problems(self) -> Iterator[Problem]:
        """Problems between the fields."""
        # What Muster has found stands beside where it has found it.
        named = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(named) != 1 and named not in (["run", "s3"], ["s3", "hub"]):
            found = "no source is set" if not named else f"{' and '.join(named)} are set"
            yield StatedProblem("model", found, "set one of run, s3, hub and package")
        needs = {
            "rank": "run",
            "private_hub": "hub",
            "accept_eula": "hub",
            "hub_content_arn": "hub",
            "package_group": "package",
        }
        for name, source in needs.items():
            if getattr(self, name) is not None and getattr(self, source) is None:
                yield StatedProblem(f"model.{name}", f"set without {source}", "leave it out")

    @property
    def is_found(self) -> bool:
        """Whether it is known where the model is."""
        return self.s3 is not None or self.package is not None

    @property
    def mount(self) -> str | None:
        """Where the container finds the model: a directory, or the file of a single object; None with `package`."""
        if self.s3 is None:
            return None
        name = self.s3.rpartition("/")[2]
        return f"{MODEL_MOUNT}/{name}" if name else MODEL_MOUNT

    def channel(self) -> Channel | None:
        """The channel `model`, downloaded before the program starts; None with `package`."""
        if self.s3 is None:
            return None
        eula = None if self.accept_eula is None else ModelAccessConfig(accept_eula=self.accept_eula)
        arn = self.hub_content_arn
        hub = None if arn is None else HubAccessConfig(hub_content_arn=arn)
        source = S3DataSource(s3_uri=self.s3, model_access_config=eula, hub_access_config=hub)
        return Channel(channel_name=MODEL_CHANNEL, data_source=DataSource(s3_data_source=source), input_mode="File")

    def package_request(self) -> RequestPart | None:
        """ModelPackageConfig; None without `package`."""
        if self.package is None:
            return None
        # A package's ARN ends with its group's name and its version.
        prefix, _, name = self.package.partition(":model-package/")
        own = f"{prefix}:model-package-group/{name.rpartition('/')[0] or name}"
        return {"ModelPackageGroupArn": self.package_group or own, "SourceModelPackageArn": self.package}
