"""Names of others in a spec: the answer says what they are called here. Nothing has two names."""

from __future__ import annotations

import re

import pytest

from muster.contract.errors import SpecError
from muster.contract.hyperpod.cluster_fields import HyperPod
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.hints import FORMER, OF_CLUSTERS
from tests.support.torchx_options import OPTIONS

GOOD = {"replicas": 1, "trainer": "m:f"}
ROLE = "arn:aws:iam::123456789012:role/path/train"


@pytest.mark.parametrize("name", [*OPTIONS, *FORMER])
def test_an_option_of_the_former_schedulers_is_a_field_or_answered_with_it(name: str) -> None:
    if name in {*Spec.model_fields, "quiet"}:
        return
    with pytest.raises(SpecError) as refused:
        parse_spec({**GOOD, name: "x"})
    text = next(str(problem) for problem in refused.value.problems if problem.field == name)
    assert f"{name}: unknown field; " in text
    assert any(field in text for field in Spec.model_fields), text


@pytest.mark.parametrize("where", ["hyperpod", "overrides"])
@pytest.mark.parametrize("name", OF_CLUSTERS)
def test_an_option_of_hyperpods_command_line_is_answered_with_its_name_here(name: str, where: str) -> None:
    section = {"hyperpod": {name: "x"}}
    fields = section if where == "hyperpod" else {"overrides": {"0": section}}
    with pytest.raises(SpecError) as refused:
        parse_spec({**GOOD, "backend": "hyperpod", **fields})
    (text,) = [str(problem) for problem in refused.value.problems if problem.field.endswith(f"hyperpod.{name}")]
    assert name not in HyperPod.model_fields
    assert f"{name}: unknown field; " in text
    remedy = text.partition("unknown field; ")[2]
    beside = "beside hyperpod" in remedy
    words = [name, *re.findall(r"\w+", remedy)]
    assert any(word in (Spec if beside else HyperPod).model_fields for word in words), text


def test_conversations_are_a_type_of_data() -> None:
    source = {"s3_data_source": {"s3_uri": "s3://bucket/talks/", "s3_data_type": "Converse"}}
    (channel,) = parse_spec(
        {**GOOD, "input_data_config": [{"channel_name": "talks", "data_source": source}]}
    ).input_data_config
    assert channel.request()["DataSource"] == {
        "S3DataSource": {"S3DataType": "Converse", "S3Uri": "s3://bucket/talks/"}
    }


@pytest.mark.parametrize(("role", "named"), [("train_1", "train_1"), (ROLE, None), (None, None)])
def test_a_role_has_an_arn_or_a_name(role: str | None, named: str | None) -> None:
    assert parse_spec({**GOOD, "role_arn": role}).named_role == named


@pytest.mark.parametrize("role", ["path/train", "arn:aws:iam::1:role/train", "two words", "x" * 65, ""])
def test_what_is_neither_is_refused(role: str) -> None:
    with pytest.raises(SpecError, match=r"role_arn: found"):
        parse_spec({**GOOD, "role_arn": role})


def test_an_exact_checkpoint_prefix_belongs_to_one_replica() -> None:
    program = {"replicas": 1, "entrypoint": ["train"], "checkpoint_uri_exact": True}
    assert checkpoint({**program, "checkpoint_config": {"s3_uri": "s3://bucket/exact"}}, 0) == "s3://bucket/exact"
    several = {**program, "replicas": 2, "checkpoint_config": {"s3_uri": "s3://bucket/r{rank}/"}}
    assert [checkpoint(several, rank) for rank in range(2)] == ["s3://bucket/r0/", "s3://bucket/r1/"]
    appended = {**program, "checkpoint_uri_exact": False, "checkpoint_config": {"s3_uri": "s3://bucket/all"}}
    assert checkpoint(appended, 0) == "s3://bucket/all/run/r0/"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"checkpoint_uri_exact": True}, "checkpoint_uri_exact: true without a prefix"),
        (
            {"checkpoint_uri_exact": True, "checkpoint_config": {"s3_uri": "s3://bucket/all/"}},
            r"with several replicas a prefix that contains \{rank\}/",
        ),
        (
            {"checkpoint_uri_exact": True, "checkpoint_config": {"s3_uri": "s3://bucket/r{rank}"}},
            r"with several replicas a prefix that contains \{rank\}/",
        ),
        ({"checkpoint_config": {"s3_uri": "s3://bucket/r{rank}/"}}, "is not filled in; set checkpoint_uri_exact"),
    ],
)
def test_an_exact_prefix_that_replicas_would_share_is_refused(fields: dict[str, object], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        parse_spec({"replicas": 2, "entrypoint": ["train"], **fields})


def checkpoint(document: dict[str, object], rank: int) -> object:
    return parse_spec(document).checkpoint_request("s3://default/", "run", rank)["S3Uri"]
