"""The model that training starts from: what a spec says under `model`, and what a job gets of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, JsonValue

from muster.contract import names
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.input_channels import Channel
from muster.contract.training.values import LINE, S3Uri, Section, Wording

MODEL_CHANNEL = "model"
"""The channel of the model: /opt/ml/input/data/model in the container."""

PUBLIC_HUB = "SageMakerPublicHub"
"""AWS's hub of models, which every account may read."""

_ARN = r"^arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:"
_HubName = Annotated[
    str,
    # DescribeHubContent: HubContentName, HubName.
    Field(max_length=63, pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$"),
    Wording("letters, digits and hyphens between them"),
]
_SOURCES = ("run", "s3", "hub", "package")
# Which source each of the other fields belongs to.
_BELONGS_TO = {
    "rank": "run",
    "private_hub": "hub",
    "accept_eula": "hub",
    "hub_content_arn": "hub",
    "package_group": "package",
}
# A last part that ends so is an object's: `v1.2` is a folder, `model.tar.gz` is not.
_OBJECT = re.compile(r"[^/]*\.[A-Za-z][A-Za-z0-9]*")


def is_object(uri: str) -> bool:
    """Whether a URI without a slash at its end looks like that of one object, not of a folder."""
    return _OBJECT.fullmatch(uri.rpartition("/")[2]) is not None


class ModelSource(Document):
    """One of `run`, `s3`, `hub` and `package`.

    Muster finds what `run` and `hub` mean, and writes that into `s3` beside them.
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

    @property
    def is_found(self) -> bool:
        """Whether it is known where the model is."""
        return self.s3 is not None or self.package is not None

    def problems(self) -> Iterator[Problem]:
        """Problems between the fields."""
        named = [name for name in _SOURCES if getattr(self, name) is not None]
        # What Muster has found stands beside where it has found it.
        if len(named) != 1 and named not in (["run", "s3"], ["s3", "hub"]):
            found = f"{' and '.join(named)} are set" if named else "no source is set"
            yield StatedProblem("model", found, "set one of run, s3, hub and package")
        for name, source in _BELONGS_TO.items():
            if getattr(self, name) is not None and getattr(self, source) is None:
                yield StatedProblem(f"model.{name}", f"set without {source}", "leave it out")

    def channel(self) -> dict[str, JsonValue] | None:
        """The channel `model` of a spec, downloaded before the program starts; None where it is not in S3.

        A folder ends with a slash: SageMaker takes every object whose key begins with the URI.
        """
        if self.s3 is None:
            return None
        uri = self.s3 if self.s3.endswith("/") or is_object(self.s3) else f"{self.s3}/"
        source: dict[str, JsonValue] = {"s3_uri": uri}
        if self.accept_eula is not None:
            source["model_access_config"] = {"accept_eula": self.accept_eula}
        if self.hub_content_arn is not None:
            source["hub_access_config"] = {"hub_content_arn": self.hub_content_arn}
        return {"channel_name": MODEL_CHANNEL, "data_source": {"s3_data_source": source}, "input_mode": "File"}

    def package_config(self) -> dict[str, JsonValue] | None:
        """The field `model_package_config` of a spec; None without `package`."""
        if self.package is None:
            return None
        # A package's ARN ends with its group's name and its version.
        prefix, _, name = self.package.partition(":model-package/")
        own = f"{prefix}:model-package-group/{name.rpartition('/')[0] or name}"
        return {"model_package_group_arn": self.package_group or own, "source_model_package_arn": self.package}


class ModelFields(Document):
    """The model that training starts from."""

    model: ModelSource | None = Field(
        default=None,
        description="the model that training starts from: the channel `model`, or a model package. One of "
        "`{run: NAME}`, `{s3: URI}`, `{hub: NAME}` and `{package: ARN}`",
    )

    def model_problems(self, channels: Sequence[Channel]) -> Iterator[Problem]:
        """Problems of the model, and between it and the channels."""
        if self.model is None:
            return
        yield from self.model.problems()
        wanted = self.model.channel()
        own = [channel for channel in channels if channel.channel_name == MODEL_CHANNEL]
        if wanted is not None and own and own[0] != Channel.model_validate(wanted):
            remedy = "rename the channel, or leave model out"
            yield StatedProblem("model", f"set together with a channel named {MODEL_CHANNEL}", remedy)


def with_model(document: Mapping[Any, Any], source: ModelSource) -> dict[Any, Any]:
    """A spec's document with a model that was found: its channel or its package, and where it was found.

    What the document sets itself stays; a document that has all this already stays as it is.
    """
    filled = {**document, "model": source.model_dump(mode="json", exclude_none=True)}
    channel, package = source.channel(), source.package_config()
    channels = document.get("input_data_config") or []
    if channel is not None and isinstance(channels, list):
        names_ = [one.get("channel_name") for one in channels if isinstance(one, Mapping)]
        if MODEL_CHANNEL not in names_:
            filled["input_data_config"] = [*channels, channel]
    config = document.get("model_package_config") or {}
    if package is not None and isinstance(config, Mapping):
        filled["model_package_config"] = {**package, **config}
    return filled


class ModelPackageConfig(Section):
    """Packages that a job starts from and registers, of models whose weights stay with AWS. The group is required."""

    model_package_group_arn: Annotated[
        str,
        Field(max_length=2_048, pattern=_ARN + r"model-package-group/\S{1,2048}$"),
        Wording("arn:aws:sagemaker:region:123456789012:model-package-group/name", "write the group's whole ARN"),
    ] = Field(description="the group that gets the package of the trained model")
    source_model_package_arn: Annotated[
        str | None,
        Field(max_length=2_048, pattern=_ARN + r"model-package/\S{1,2048}$"),
        Wording("arn:aws:sagemaker:region:123456789012:model-package/name/1", "write the package's whole ARN"),
    ] = Field(default=None, description="the package whose model is trained further or evaluated")


class ModelPackageFields(Document):
    """Model packages."""

    model_package_config: ModelPackageConfig | None = Field(
        default=None, description="model packages to start from and to register, for recipes of such models"
    )
