"""What a job reads in the bucket of its place: put there before the first job of a run, and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.control.replica_package import keep
from muster.options.places.contract.placed_request import delivered

if TYPE_CHECKING:
    from muster.control.aws.store import DocumentStore
    from muster.control.documents import PlannedRun
    from muster.options.places.control.place_clients import Silence


def deliver(run: PlannedRun, rank: int, there: DocumentStore, silence: Silence) -> None:
    """Copy the run document, the source code, the package and the recipe `there`, unless they are. Idempotent.

    Raises:
        PlaceSilentError: the place does not answer.
    """
    documents, keys, folders = delivered(run.plan, rank)
    home = run.documents.store
    keys += [key for folder in folders for key in home.keys(folder)]
    # The run document comes last: where it is, the rest is, too.
    silence.call(lambda: _copy(home, there, keys, documents))


def _copy(home: DocumentStore, there: DocumentStore, keys: list[str], documents: dict[str, bytes]) -> None:
    if all(map(there.exists, documents)):
        return
    for key in keys:

        def read(key: str = key) -> bytes | None:
            found = home.get(key)
            return None if found is None else found.body

        if not keep(there, key, read) and (body := read()) is not None:
            there.create(key, body, "application/octet-stream")
    for key, body in documents.items():
        there.create(key, body)
