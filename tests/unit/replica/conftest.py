"""What the tests of the replica share."""

from collections.abc import Iterator

import pytest

from muster.replica.store import s3_store
from tests.support.s3_server import S3Server, s3_server


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """S3, which the environment names; a request that fails is repeated at once."""
    for name in (*s3_store.CA_VARIABLES, "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(s3_store, "BACKOFF_FIRST_SECONDS", 0.001)
    with s3_server() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        yield served
