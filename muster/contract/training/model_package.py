"""ModelPackageConfig: the packages that a job starts from and registers, of models whose weights stay with AWS."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.contract.document import Document
from muster.contract.training.section import Section
from muster.contract.training.values import Wording

_PACKAGE = r"^arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]{9,16}:[0-9]{12}:"


class ModelPackageConfig(Section):
    """Model packages of the account. The service requires the group."""

    model_package_group_arn: Annotated[
        str,
        Field(max_length=2_048, pattern=_PACKAGE + r"model-package-group/\S{1,2048}$"),
        Wording("arn:aws:sagemaker:region:123456789012:model-package-group/name", "write the group's whole ARN"),
    ] = Field(description="the group that gets the package of the trained model")
    source_model_package_arn: Annotated[
        str | None,
        Field(max_length=2_048, pattern=_PACKAGE + r"model-package/\S{1,2048}$"),
        Wording("arn:aws:sagemaker:region:123456789012:model-package/name/1", "write the package's whole ARN"),
    ] = Field(default=None, description="the package whose model is trained further or evaluated")


class ModelPackageFields(Document):
    """Model packages."""

    model_package_config: ModelPackageConfig | None = Field(
        default=None, description="model packages to start from and to register, for recipes of such models"
    )
