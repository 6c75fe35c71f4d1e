"""The client's loader of service models finds and reads what botocore's own does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.exceptions import DataNotFoundError, UnknownServiceError
from botocore.loaders import create_loader

from muster.client.aws.service_models import ServiceModels

SERVICES = ("cloudformation", "iam", "lambda", "logs", "s3", "sagemaker", "sqs", "stepfunctions")
KINDS = ("service-2", "paginators-1", "endpoint-rule-set-1")


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_that_of_botocore(service: str, kind: str) -> None:
    ours = ServiceModels(None).load_service_model(service, kind)
    theirs = create_loader().load_service_model(service, kind)
    assert json.dumps(ours) == json.dumps(theirs)


@pytest.mark.parametrize("name", ["endpoints", "partitions", "_retry", "sdk-default-configuration"])
def test_other_data_is_that_of_botocore(name: str) -> None:
    assert json.dumps(ServiceModels(None).load_data(name)) == json.dumps(create_loader().load_data(name))


def test_a_folder_of_the_users_configuration_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "sqs" / "2099-01-01" / "service-2.json"
    model.parent.mkdir(parents=True)
    model.write_text('{"metadata": {"serviceId": "own"}}')
    monkeypatch.setenv("MODELS", str(tmp_path))
    loader = ServiceModels("$MODELS")
    assert loader.load_service_model("sqs", "service-2") == {"metadata": {"serviceId": "own"}}
    assert loader.search_paths == create_loader("$MODELS").search_paths


def test_what_is_not_there_is_an_error_of_botocore(tmp_path: Path) -> None:
    (tmp_path / "partial").mkdir()
    with pytest.raises(UnknownServiceError, match="absent"):
        ServiceModels(None).load_service_model("absent", "service-2")
    with pytest.raises(DataNotFoundError):
        ServiceModels(str(tmp_path)).load_service_model("partial", "service-2")
