"""Connections to the embedded cloud are kept, as AWS keeps them."""

import http.client
import ssl
from urllib.parse import urlsplit

import pytest
from botocore.config import Config

from tests.support.workshop import Workshop

SECONDS = 0.5  # in which a server that does not wait for the body has long answered


def test_a_refused_upload_leaves_its_connection_usable(workshop: Workshop) -> None:
    """A server that answers before it has read the body must close the connection, which breaks the next request."""
    signer = workshop.cloud.client("s3", config=Config(signature_version="s3v4"))
    foreign = {"Bucket": workshop.bucket, "Key": "kept", "ExpectedBucketOwner": "999999999999"}
    url = urlsplit(signer.generate_presigned_url("put_object", Params=foreign))
    secure = ssl.create_default_context(cafile=workshop.cloud.environment()["AWS_CA_BUNDLE"])
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, context=secure, timeout=30)
    connection.putrequest("PUT", f"{url.path}?{url.query}")
    connection.putheader("x-amz-expected-bucket-owner", "999999999999")
    connection.putheader("Content-Length", "1")
    connection.endheaders()
    connection.sock.settimeout(SECONDS)
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.sock.settimeout(30)
    connection.send(b"x")
    answer = connection.getresponse()
    assert (answer.status, b"AccessDenied" in answer.read()) == (403, True)
