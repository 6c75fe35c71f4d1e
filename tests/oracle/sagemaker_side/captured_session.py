"""A session of the SDK in which nothing happens: what would be sent or uploaded is kept."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from sagemaker.core.helper.session_helper import Session

from tests.oracle.sagemaker_side.closed_process import REGION

BUCKET = "sdk-bucket"


class CapturedRequestError(Exception):
    """The body of a CreateTrainingJob request, as it would have been sent."""


@cache
def shared_boto_session() -> Any:
    """One session of boto3 for all questions: building its clients takes longer than answering."""
    session = boto3.Session(region_name=REGION)

    def capture(params: dict[str, Any], **_: object) -> None:
        raise CapturedRequestError(params["body"])

    def refuse(**_: object) -> None:
        message = "the oracle asks IAM nothing"
        raise PermissionError(message)

    session.events.register("before-call.sagemaker.CreateTrainingJob", capture)
    session.events.register("before-call.iam", refuse)
    create = cache(session.client)
    session.client = lambda name, *_, **__: create(name)
    return session


def captured_session() -> Any:
    """A session that uploads nothing, asks IAM nothing, and whose CreateTrainingJob raises CapturedRequestError."""

    class Capturing(Session):  # type: ignore[misc]
        def __init__(self) -> None:
            self.boto_session = shared_boto_session()
            self.default_bucket_prefix = None
            self.sagemaker_config = {}
            self.config = None
            self.uploads: dict[str, str] = {}

        @property
        def boto_region_name(self) -> str:
            return REGION

        def default_bucket(self) -> str:
            return BUCKET

        def upload_data(self, path: str, bucket: str, key_prefix: str, extra_args: object = None) -> str:
            place = f"s3://{bucket}/{key_prefix}"
            if Path(path).is_file():
                self.uploads[Path(path).name] = Path(path).read_text()
                return f"{place}/{Path(path).name}"
            held = sorted(str(item.relative_to(path)) for item in Path(path).rglob("*") if item.is_file())
            self.uploads[key_prefix.rsplit("/", 1)[-1]] = json.dumps(held)
            for item in Path(path).glob("*.yaml"):
                self.uploads[item.name] = item.read_text()
            return place

    return Capturing()
