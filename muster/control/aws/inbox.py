"""The inbox: specs as objects in the bucket. An object beside a refused spec lists its problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from muster.contract.errors import Problem, SpecError
from muster.contract.layout import split_s3_uri
from muster.contract.run.execution_input import INBOX
from muster.contract.spec.spec import SPEC_BYTES_MAX
from muster.contract.spec.spec_reader import check_size
from muster.control.aws.aws_errors import error_code, http_status
from muster.control.aws.store import DocumentStore

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import GetObjectRequestTypeDef


class Inbox:
    """The specs under `inbox/`."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    def uri(self, key: str) -> str:
        """`s3://…` of a spec."""
        return self._store.uri(key)

    def key_of(self, uri: str) -> str:
        """The key of a spec named by its URI.

        Raises:
            SpecError: it is not in the inbox of this stack.
        """
        try:
            bucket, key = split_s3_uri(uri)
        except ValueError:
            bucket, key = "", ""
        if bucket != self._store.bucket or not key.startswith(INBOX):
            raise SpecError([Problem("spec_uri", repr(uri), f"put the spec under {self.uri(INBOX)}")])
        return key

    def read(self, key: str, etag: str | None = None) -> str | None:
        """The text of a spec; None where there is none, or no longer one with this ETag.

        Raises:
            SpecError: it is too long, or not UTF-8 text.
        """
        # One byte more than a spec may have, which is enough to find that it is too long.
        wanted: GetObjectRequestTypeDef = {
            "Bucket": self._store.bucket,
            "Key": key,
            "Range": f"bytes=0-{SPEC_BYTES_MAX}",
        }
        if etag is not None:
            wanted["IfMatch"] = etag
        try:
            answer = self._store.s3.get_object(**wanted)
        except ClientError as error:
            if error_code(error) == "InvalidRange":  # an empty object has no first byte
                return ""
            if error_code(error) == "NoSuchKey" or http_status(error) == 412:
                return None
            raise
        body = answer["Body"].read()
        check_size(len(body))  # first: the end of what was read may lie within a character
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise SpecError([Problem("the spec", "bytes that are not UTF-8", "write it as YAML or JSON")]) from None

    def complain(self, key: str, text: str) -> None:
        """Write the problems of a spec beside it."""
        self._store.s3.put_object(
            Bucket=self._store.bucket,
            Key=_complaint(key),
            Body=f"{text}\n".encode(),
            ContentType="text/plain; charset=utf-8",
        )

    def forget_complaint(self, key: str) -> None:
        """Remove the problems of an earlier version of a spec."""
        self._store.s3.delete_object(Bucket=self._store.bucket, Key=_complaint(key))


def _complaint(key: str) -> str:
    return f"{key}.error.txt"
