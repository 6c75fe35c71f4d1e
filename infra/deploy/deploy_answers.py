"""What `muster deploy`, `muster template` and `muster destroy` print with --json."""

from __future__ import annotations

from pydantic import Field

from muster.contract.document import Document
from muster.infra.deploy.settings_changes import SettingChange


class Deployment(Document):
    """A deployment: what it changes, and where the stack's parts are afterwards."""

    stack: str = Field(description="name of the CloudFormation stack")
    account: str = Field(description="the account")
    region: str = Field(description="the region")
    settings: tuple[SettingChange, ...] = Field(description="the settings that change")
    resources: tuple[str, ...] = Field(description="the resources that are created (+), changed (~) or deleted (-)")
    beside: dict[str, tuple[str, ...]] = Field(description="the same of the stacks of places, by their names")
    commands: tuple[str, ...] = Field(description="commands that remain for you to run after the deployment")
    deployed: bool = Field(description="false with --diff, which changes nothing")
    outputs: dict[str, str] = Field(description="the outputs of the stack; empty with --diff")


class TemplateWritten(Document):
    """The stack as a CloudFormation template in a folder."""

    stack: str = Field(description="name of the stack, as the settings give it")
    version: str = Field(description="version of Muster")
    template: str = Field(description="the template's file")
    archives: tuple[str, ...] = Field(description="files beside it that the template names, without the prefix")
    beside: tuple[str, ...] = Field(description="files with the templates of places")


class Destruction(Document):
    """A stack that was deleted."""

    stack: str = Field(description="name of the CloudFormation stack")
    region: str = Field(description="the region")
    stopped_runs: tuple[str, ...] = Field(description="the runs that were stopped first")
    resources: int = Field(description="how many resources the stack had")
    kept_bucket: str | None = Field(description="the bucket that stays; null if it was deleted, too")
    kept_beside: tuple[str, ...] = Field(description="the buckets of places that stay, where only they have something")
