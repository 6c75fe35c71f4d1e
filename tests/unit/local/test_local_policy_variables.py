"""Variables in policies, as IAM documents them."""

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from ministack.core import iam_evaluator

from muster.local.ministack import policy_variables

KEYS = {"aws:principaltag/run": "one", "aws:principaltag/star": "*", "aws:username": "ann"}
BUCKET = "arn:aws:s3:::bucket"


@pytest.fixture(scope="module", autouse=True)
def evaluator() -> Iterator[None]:
    """MiniStack's evaluator with variables, and as it was afterwards."""
    policy_variables.install()
    yield
    importlib.reload(iam_evaluator)


def context(resource: str) -> iam_evaluator.EvalContext:
    return iam_evaluator.EvalContext(
        principal_arn="arn:aws:sts::123456789012:assumed-role/role/session",
        principal_type="AssumedRole",
        principal_account="123456789012",
        action="s3:GetObject",
        resource_arn=resource,
        region="us-east-1",
        principal_keys=KEYS,
    )


def allows(resource: str, version: str | None = "2012-10-17", **statement: Any) -> bool:
    document: dict[str, Any] = {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", **statement}]}
    if version:
        document["Version"] = version
    policies = [iam_evaluator.parse_policy_document(json.dumps(document))]
    return str(iam_evaluator.evaluate(context(resource), policies).decision) == "Allow"


def test_a_resource_names_its_principal() -> None:
    allowed = {
        ("${aws:PrincipalTag/run}/*", "one/a"): True,
        ("${aws:PrincipalTag/run}/*", "two/a"): False,
        # A value has no wildcards.
        ("${aws:PrincipalTag/star}/*", "one/a"): False,
        ("${aws:PrincipalTag/star}/*", "*/a"): True,
        # Without a value nothing matches, the text of the variable included.
        ("${aws:PrincipalTag/none}/*", "/a"): False,
        ("${aws:PrincipalTag/none}/*", "${aws:PrincipalTag/none}/a"): False,
        ("${aws:PrincipalTag/none, 'all'}/*", "all/a"): True,
        ("${*}/${aws:username}", "*/ann"): True,
        ("${*}/${aws:username}", "x/ann"): False,
    }
    assert {case: allows(f"{BUCKET}/{case[1]}", Resource=f"{BUCKET}/{case[0]}") for case in allowed} == allowed
    # Older documents have no variables.
    for version in (None, "2008-10-17"):
        assert not allows(f"{BUCKET}/one/a", version, Resource=f"{BUCKET}/${{aws:PrincipalTag/run}}/*")


def test_a_condition_names_its_principal() -> None:
    allowed = {
        ("StringEquals", "aws:PrincipalTag/run", "${aws:PrincipalTag/run}"): True,
        ("StringEquals", "aws:PrincipalTag/run", "${aws:username}"): False,
        ("StringEquals", "aws:PrincipalTag/star", "${aws:PrincipalTag/star}"): True,
        ("StringLike", "aws:PrincipalTag/run", "${aws:PrincipalTag/star}"): False,
        ("StringLike", "aws:PrincipalTag/run", "${aws:PrincipalTag/none}"): False,
    }
    found = {
        (operator, key, value): allows(f"{BUCKET}/a", Resource="*", Condition={operator: {key: value}})
        for operator, key, value in allowed
    }
    assert found == allowed


def test_a_resources_own_policy_has_them_too() -> None:
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": "s3:*",
        "Resource": f"{BUCKET}/${{aws:PrincipalTag/run}}/*",
    }
    document = {"Version": "2012-10-17", "Statement": statement}

    def evaluated(key: str) -> str:
        return str(iam_evaluator.evaluate_resource_policy(document, context(f"{BUCKET}/{key}")).decision)

    assert (evaluated("one/a"), evaluated("two/a")) == ("Allow", "ImplicitDeny")
