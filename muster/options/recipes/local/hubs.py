"""SageMaker Hub: the models whose documents lie in the folder `hubs/` of the state directory.

`hubs/SageMakerPublicHub/Model/NAME.json` is a model of AWS's public hub, `hubs/MINE/Model/NAME.json` one of a private
hub, and `hubs/MINE/ModelReference/NAME.json` a private hub's reference to a public model. The file is the
HubContentDocument. Files are read at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.contract.training.model_source import PUBLIC_HUB
from muster.local.sagemaker import service_errors
from muster.local.sagemaker.answer_pages import page, refuse_others
from muster.options.recipes.contract.hub_collection import DOCUMENT_MAX

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import DescribeHubContentRequestTypeDef

    from muster.local.ministack.host import Account
    from muster.local.sagemaker.service_errors import Caller

VERSION = "1.0.0"
"""Of every content: a folder holds one version of each."""
_SCHEMA = "2.4.0"
_DEFAULT_PAGE = 10

_HubAnswer = Mapping[str, object]


@dataclass(frozen=True)
class Hubs:
    """The hubs that an account and region can read."""

    account: Account
    folder: Path

    @property
    def operations(self) -> dict[str, Callable[[Any, Caller], _HubAnswer]]:
        """The operations by their names."""
        return {"DescribeHubContent": self._describe, "ListHubContents": self._list}

    def _describe(self, request: DescribeHubContentRequestTypeDef, caller: Caller) -> _HubAnswer:
        hub, kind, name = _hub_name(request["HubName"]), request["HubContentType"], request["HubContentName"]
        # Service Authorization Reference: both resource types are required.
        caller.authorise("sagemaker:DescribeHubContent", self._hub_arn(hub), {})
        caller.authorise("sagemaker:DescribeHubContent", self._content_arn(hub, kind, name), {})
        file = self._contents(hub, kind).get(name)
        if file is None or request.get("HubContentVersion", VERSION) != VERSION:
            message = f"Hub content {name} of type {kind} does not exist in hub {hub}."
            raise service_errors.no_hub_content(message)
        document = file.read_text(encoding="utf-8")
        if len(document) > DOCUMENT_MAX:
            found = f"{file} has {len(document):,} characters"
            message = f"{found}; the document of a hub's content has at most {DOCUMENT_MAX:,}."
            raise service_errors.no_hub_content(message)
        return {
            **self._summary(hub, kind, name, file),
            "HubName": hub,
            "HubArn": self._hub_arn(hub),
            "HubContentDocument": document,
            "LastModifiedTime": file.stat().st_mtime,
        }

    def _list(self, request: Mapping[str, Any], caller: Caller) -> _HubAnswer:
        hub, kind = _hub_name(request["HubName"]), request["HubContentType"]
        caller.authorise("sagemaker:ListHubContents", self._hub_arn(hub), {})
        refuse_others(request, "HubName", "HubContentType")
        rows = [self._summary(hub, kind, name, file) for name, file in self._contents(hub, kind).items()]
        return page("HubContentSummaries", rows, request, _DEFAULT_PAGE)

    def _contents(self, hub: str, kind: str) -> dict[str, Path]:
        """The files of a hub's contents of one type, by name.

        Raises:
            ServiceError: there is no such hub.
        """
        if not (self.folder / hub).is_dir():
            message = f"Hub {hub} does not exist."
            raise service_errors.no_hub_content(message)
        return {file.stem: file for file in sorted((self.folder / hub / kind).glob("*.json"))}

    def _summary(self, hub: str, kind: str, name: str, file: Path) -> dict[str, Any]:
        found: dict[str, object] = {
            "HubContentName": name,
            "HubContentArn": self._content_arn(hub, kind, name),
            "HubContentVersion": VERSION,
            "HubContentType": kind,
            "DocumentSchemaVersion": _SCHEMA,
            "HubContentStatus": "Available",
            "CreationTime": file.stat().st_mtime,
        }
        if kind == "ModelReference":
            public = self._content_arn(PUBLIC_HUB, "Model", name).removesuffix(f"/{VERSION}")
            found["SageMakerPublicHubContentArn"] = public
        return found

    def _hub_arn(self, hub: str) -> str:
        return self._arn(hub, f"hub/{hub}")

    def _content_arn(self, hub: str, kind: str, name: str) -> str:
        return self._arn(hub, f"hub-content/{hub}/{kind}/{name}/{VERSION}")

    def _arn(self, hub: str, resource: str) -> str:
        owner = "aws" if hub == PUBLIC_HUB else self.account.account_id
        return f"arn:{self.account.partition}:sagemaker:{self.account.region}:{owner}:{resource}"


def _hub_name(name: str) -> str:
    """A hub is named by its name or its ARN."""
    return name.rpartition("/")[2]
