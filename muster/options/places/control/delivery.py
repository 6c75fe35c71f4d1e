"""What a job reads in the bucket of its place: put there before the first job of a run, and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.control.replica_package import keep
from muster.options.places.contract.placed_request import delivered

if TYPE_CHECKING:
    from muster.control.active_run import ActiveRun
    from muster.control.aws.store import DocumentStore
    from muster.options.places.control.placement import OpenPlace


def deliver(run: ActiveRun, rank: int, place: OpenPlace) -> None:
    """Copy the run document, the source code, the package and the recipe, unless they are there. Idempotent.

    Raises:
        PlaceSilentError: the place does not answer.
    """
    documents, keys, folders = delivered(run.plan, rank)
    home = run.documents.store
    keys += [key for folder in folders for key in home.keys(folder)]
    # The run document comes last: where it is, the rest is, too.
    there = place.store(run.plan)
    place.silence.call(lambda: _copy(home, there, keys, documents))


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
