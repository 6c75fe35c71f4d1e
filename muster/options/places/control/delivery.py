"""What a job reads in the bucket of its place: put there before the first job of a run, and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from muster.control.aws.aws_errors import http_status
from muster.control.replica_package import keep
from muster.options.places.contract.placed_request import delivered

if TYPE_CHECKING:
    from muster.control.aws.store import DocumentStore
    from muster.control.documents import PlannedRun


def deliver(run: PlannedRun, rank: int, there: DocumentStore) -> None:
    """Copy the run document, the source code, the package and the recipe `there`, unless they are. Idempotent.

    Raises:
        PlaceSilentError: the place does not answer.
        LaunchRefusedError: it denies access.
        ClientError, BotoCoreError: S3 failed at home, or throttles there.
    """
    documents, keys, folders = delivered(run.plan, rank)
    home = run.documents.store
    keys += [key for folder in folders for key in home.keys(folder)]
    # The run document comes last: where it is, the rest is, too.
    if all(_has(there, key) for key in documents):
        return
    for key in keys:

        def read(key: str = key) -> bytes | None:
            found = home.get(key)
            return None if found is None else found.body

        if not keep(there, key, read) and (body := read()) is not None:
            there.create(key, body, "application/octet-stream")
    for key, body in documents.items():
        there.create(key, body)


def _has(there: DocumentStore, key: str) -> bool:
    try:
        return there.exists(key)
    except ClientError as error:
        if http_status(error) != 503:
            raise
    # That may be S3 that throttles, or that fails: only the answer to a GET names a code.
    return there.get(key) is not None
