"""The hubs of the embedded cloud."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from muster.local.sagemaker.request_validation import operation_model
from muster.local.sagemaker.service_errors import ServiceError
from muster.options.recipes.local.hubs import Hubs

if TYPE_CHECKING:
    from muster.local.sagemaker.service_errors import Caller


def test_what_a_hub_answers_has_the_members_of_the_model_and_its_lists_have_pages(tmp_path: Path) -> None:
    folder, names = tmp_path / "hub" / "ModelReference", [f"llama-{number:02}" for number in range(12)]
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.json").write_text("{}", encoding="utf-8")
    (folder / "zlong.json").write_text(" " * 327_681, encoding="utf-8")
    account: Any = SimpleNamespace(account_id="123456789012", region="us-east-1", partition="aws")
    hubs, asked = Hubs(account, tmp_path), list[str]()
    caller = cast("Caller", SimpleNamespace(authorise=lambda action, *_: asked.append(action.partition(":")[2])))
    request = {"HubName": "hub", "HubContentType": "ModelReference", "HubContentName": "llama-01"}
    found = hubs.operations["DescribeHubContent"](request, caller)
    shape = operation_model("DescribeHubContent").output_shape
    assert shape is not None
    assert set(shape.required_members) <= found.keys() <= shape.members.keys()
    for change in ({"HubName": "none"}, {"HubContentName": "zlong"}, {"HubContentName": "none"}):
        with pytest.raises(ServiceError) as refused:
            hubs.operations["DescribeHubContent"]({**request, **change}, caller)
        assert refused.value.code == "ResourceNotFound", change

    def page(**more: Any) -> tuple[list[Any], Any]:
        asked_for = {"HubName": found["HubArn"], "HubContentType": "ModelReference", **more}
        answer = hubs.operations["ListHubContents"](asked_for, caller)
        return answer["HubContentSummaries"], answer.get("NextToken")  # type: ignore[return-value]

    first, token = page()
    second, end = page(NextToken=token)
    listed = [one["HubContentName"] for one in (*first, *second)]
    assert (len(first), listed, end) == (10, [*names, "zlong"], None)
    for wrong, code in (({"NextToken": "x"}, "ValidationException"), ({"SortOrder": "Descending"}, "NotImplemented")):
        with pytest.raises(ServiceError) as refused:
            page(**wrong)
        assert refused.value.code == code
    [last], _ = page(NextToken="11", MaxResults=1)
    shape = operation_model("ListHubContents").output_shape
    assert shape is not None
    row: Any = shape.members["HubContentSummaries"]
    assert set(row.member.required_members) <= last.keys() <= row.member.members.keys()
    assert page(HubContentType="Model") == ([], None)
    assert set(asked) == {"DescribeHubContent", "ListHubContents"}
