"""Where recipes are, on the embedded cloud: objects of any region, access points and SageMaker Hub, with the rights."""

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from muster.client.aws.connection import open_session
from muster.client.client_errors import RecipePlaceError
from muster.control.aws.clients import Clients
from muster.options.recipes.client.catalog import hub_recipes
from muster.options.recipes.client.client_reader import ClientReader
from muster.options.recipes.contract.gathering import gather
from muster.options.recipes.contract.recipe_request import read_request
from muster.options.recipes.contract.recipe_text import TEXT_MAX
from muster.options.recipes.contract.text_places import PlaceError, S3Place
from muster.options.recipes.control.function_reader import FunctionReader
from muster.options.recipes.local.sagemaker_operations import HUBS
from tests.support.workshop import Workshop, turn_to

HUB = "arn:aws:sagemaker:us-east-1:aws:hub/SageMakerPublicHub"
MODEL = "arn:aws:sagemaker:us-east-1:aws:hub-content/SageMakerPublicHub/Model/"
RECIPE = {
    "Name": "llama_sft_lora",
    "CustomizationTechnique": "SFT",
    "Peft": "LORA",
    "SmtjRecipeTemplateS3Uri": "s3://BUCKET/hub/template.yaml",
    "SmtjOverrideParamsS3Uri": "s3://BUCKET/hub/params.json",
    "SmtjImageUri": "image",
}


@pytest.fixture
def as_user(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClientReader]:
    """A reader with the rights of a new user who has these statements."""
    turn_to(monkeypatch, workshop.cloud)

    def reader(*statements: dict[str, Any]) -> ClientReader:
        key = workshop.access_key(statements)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        return ClientReader(lambda: open_session(None, None))

    return reader


@pytest.fixture
def names_of_localhost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An access point has a host name of its own, which on AWS is in the DNS."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: resolve("127.0.0.1" if str(host).endswith("localhost") else host, *rest, **more),
    )
    return iter(())


def allow(action: str | list[str], *resources: str) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": list(resources)}


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(PlaceError) as caught:
        call()
    return caught.value.statement


def test_objects_are_read_within_bounds_in_every_region_and_with_the_users_rights(
    workshop: Workshop, as_user: Callable[..., ClientReader]
) -> None:
    near, far = workshop.bucket, workshop.name("far")
    abroad = workshop.cloud.client("s3", region_name="eu-west-1")
    abroad.create_bucket(Bucket=far, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    abroad.put_object(Bucket=far, Key="r.yaml", Body=b"a: far")
    for key, body in (("a/r.yaml", b"\xef\xbb\xbfa: 1"), ("a/empty", b""), ("a/bad", b"\xff"), ("b/r.yaml", b"a: 2")):
        workshop.s3.put_object(Bucket=near, Key=key, Body=body)
    workshop.s3.put_object(Bucket=near, Key="a/large", Body=b" " * (TEXT_MAX + 1))
    get = allow("s3:GetObject", f"arn:aws:s3:::{near}/a/*", f"arn:aws:s3:::{far}/*")
    reader = as_user(get, allow("s3:ListBucket", f"arn:aws:s3:::{near}"))

    def read(bucket: str, key: str) -> str:
        return reader.read_object(S3Place(bucket, key))

    assert read(near, "a/r.yaml") == "a: 1"
    assert read(near, "a/empty") == ""
    # S3 answers 301 with the region of the bucket.
    assert read(far, "r.yaml") == "a: far"
    assert refusal(lambda: read(near, "a/no.yaml")) == f"s3://{near}/a/no.yaml does not exist"
    assert refusal(lambda: read("no-such-bucket", "x")) == "s3://no-such-bucket/x does not exist"
    assert refusal(lambda: read(near, "a/large")) == f"s3://{near}/a/large has more than 1,048,576 bytes"
    assert refusal(lambda: read(near, "a/bad")) == f"s3://{near}/a/bad is not UTF-8 text"
    denied = f"these credentials may not read s3://{near}/b/r.yaml, or it does not exist"
    assert refusal(lambda: read(near, "b/r.yaml")) == denied
    # Without the right to list, S3 does not say whether there is such an object.
    reader = as_user(get)
    assert refusal(lambda: read(near, "a/no.yaml")).endswith("a/no.yaml, or it does not exist")


@pytest.mark.usefixtures("names_of_localhost")
def test_an_access_point_is_read_by_its_arn(
    workshop: Workshop, as_user: Callable[..., ClientReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = workshop.cloud.endpoint.replace("127.0.0.1", "localhost")
    name, account = workshop.name("point"), workshop.cloud.state.account_id
    workshop.s3.put_object(Bucket=workshop.bucket, Key="a/r.yaml", Body=b"a: 1")
    control = workshop.cloud.client("s3control", endpoint_url=endpoint)
    arn = control.create_access_point(AccountId=account, Name=name, Bucket=workshop.bucket)["AccessPointArn"]
    reader = as_user(allow("s3:GetObject", f"{arn}/object/a/*", f"arn:aws:s3:::{workshop.bucket}/a/*"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    uri = f"s3://{arn.replace(account, '{customer_id}')}/a/r.yaml"
    sources = gather(read_request({"base": uri}), reader)
    assert sources.base is not None
    assert (sources.base.place, sources.base.text) == (f"s3://{arn}/a/r.yaml", "a: 1")
    assert "may not read" in refusal(lambda: reader.read_object(S3Place(arn, "b/r.yaml")))


def test_a_hubs_recipe_is_gathered_with_the_rights_to_the_hub_and_to_its_files(
    workshop: Workshop, as_user: Callable[..., ClientReader]
) -> None:
    bucket, folder = workshop.bucket, workshop.cloud.directory.root / HUBS
    model, private = workshop.name("model"), workshop.name("hub")
    document = json.dumps({"RecipeCollection": [RECIPE], "TrainingArtifactUri": f"s3://{bucket}/weights/"})
    for place in (f"SageMakerPublicHub/Model/{model}", f"{private}/ModelReference/{model}-reference"):
        file = folder / f"{place}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document.replace("BUCKET", bucket), encoding="utf-8")
    workshop.s3.put_object(Bucket=bucket, Key="hub/template.yaml", Body=b"lr: '{{lr}}'")
    workshop.s3.put_object(Bucket=bucket, Key="hub/params.json", Body=b'{"lr": {"type": "float"}}')
    files = allow("s3:GetObject", f"arn:aws:s3:::{bucket}/hub/*")
    describe = allow("sagemaker:DescribeHubContent", HUB, f"{MODEL}*")
    request = read_request({"hub": {"model": model, "technique": "SFT"}})

    sources = gather(request, as_user(files, describe))
    assert (sources.name, sources.image, sources.weights) == ("llama_sft_lora", "image", f"s3://{bucket}/weights/")
    assert sources.base is not None
    assert sources.base.text == "lr: '{{lr}}'"
    # The function that plans a run reads the same, with the same rights.
    account = workshop.cloud.state.account_id
    assert gather(request, FunctionReader(Clients(), account, "stack")) == sources
    # Both the hub and what is in it must be allowed.
    for statement in (allow("sagemaker:DescribeHubContent", HUB), allow("sagemaker:DescribeHubContent", f"{MODEL}*")):
        reader = as_user(files, statement)
        function = FunctionReader(Clients(), account, "stack")
        assert "may not read the hub" in refusal(lambda: function.hub_content("SageMakerPublicHub", model))  # noqa: B023
        assert refusal(lambda: reader.hub_content("SageMakerPublicHub", model)).endswith("SageMakerPublicHub")  # noqa: B023
    reader = as_user(allow("sagemaker:DescribeHubContent", "*"))
    found = reader.hub_content(private, f"{model}-reference")
    assert found is not None
    own = f"arn:aws:sagemaker:us-east-1:{account}:hub-content/{private}/ModelReference/{model}-reference/1.0.0"
    assert found["HubContentArn"] == own
    assert reader.hub_content(private, model) is None
    assert reader.hub_content("no-such-hub", model) is None
    catalog = hub_recipes(lambda: open_session(None, None), model, private)
    assert catalog.place == f"{model} in SageMakerPublicHub"
    assert [(one.name, one.technique, one.training_type) for one in catalog.recipes] == [
        ("llama_sft_lora", "SFT", "LORA")
    ]
    with pytest.raises(RecipePlaceError, match="No recipes can be listed: there is no model named 'none'"):
        hub_recipes(lambda: open_session(None, None), "none", None)
