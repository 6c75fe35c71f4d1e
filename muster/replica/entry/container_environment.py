"""The environment that the container was started with. Errors list everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.contract.errors import DocumentError
from muster.contract.names import CLAIM_NUMBER_MAX, REPLICAS_MAX
from muster.contract.run.commit import HOME
from muster.contract.run.replica_variables import (
    ENV_ATTEMPT,
    ENV_DOCUMENT,
    ENV_HOME_REGION,
    ENV_LOCAL_STATES,
    ENV_NEAR,
    ENV_PLACE,
    ENV_RANK,
    ENV_RUN,
)
from muster.contract.run.run_document import RunDocument
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.replica.replica_errors import InputError
from muster.replica.store.open_store import is_store_uri, open_store
from muster.replica.store.transport import ObjectMissingError, StoreDeniedError

# Below the root of SageMaker's folders, on the instance's volume; not in a folder that SageMaker copies to S3.
LOCAL_STATES = "local-states"


@dataclass(frozen=True)
class Place:
    """Where a replica of a run over several places trains: its name there, its bucket, and the region of the run's."""

    name: str
    near_uri: str | None = None
    home_region: str | None = None


@dataclass(frozen=True)
class Environment:
    """The replica's place in its run, the root of SageMaker's folders, and a folder for inner states."""

    document_uri: str
    run: str
    rank: int
    attempt: int
    base_dir: Path
    local_states: Path | None = None
    place: Place | None = None


def read_environment(variables: Mapping[str, str]) -> Environment:
    """The environment from a process's variables.

    Raises:
        InputError: lists everything that is missing or wrong.
    """
    problems: list[str] = []
    document = variables.get(ENV_DOCUMENT, "")
    if not document:
        problems.append(f"{ENV_DOCUMENT} is not set (the URI of the run document)")
    elif not is_store_uri(document):
        problems.append(f"{ENV_DOCUMENT} is {document!r}, not an s3:// or file:// URI")
    run = variables.get(ENV_RUN, "")
    if not run:
        problems.append(f"{ENV_RUN} is not set (the run's name)")
    rank = _whole_number(variables, ENV_RANK, 0, REPLICAS_MAX - 1, problems)
    attempt = _whole_number(variables, ENV_ATTEMPT, 1, CLAIM_NUMBER_MAX, problems)
    base_dir = Path(variables.get(ENV_BASE_DIR) or DEFAULT_BASE_DIR)
    if not base_dir.is_dir():
        problems.append(f"{base_dir} is not a directory ({ENV_BASE_DIR} names the root of SageMaker's folders)")
    place = _place(variables, problems)
    if problems:
        raise InputError(problems)
    local_states = Path(variables.get(ENV_LOCAL_STATES) or base_dir / LOCAL_STATES)
    return Environment(document, run, rank, attempt, base_dir, local_states, place)


def _place(variables: Mapping[str, str], problems: list[str]) -> Place | None:
    name, near = variables.get(ENV_PLACE, ""), variables.get(ENV_NEAR, "")
    if not name:
        return None
    if name == HOME:
        return Place(name)
    if not is_store_uri(near):
        problems.append(f"{ENV_NEAR} is {near!r}, not an s3:// or file:// URI, and {ENV_PLACE} is {name}")
    return Place(name, near, variables.get(ENV_HOME_REGION) or None)


def read_run_document(environment: Environment) -> RunDocument:
    """The run document, checked against the environment.

    Raises:
        InputError: it is missing, denied, unreadable, or of another run; lists everything that is wrong.
        StoreUnavailableError: the store is out of reach.
    """
    folder, _, name = environment.document_uri.rpartition("/")
    try:
        body = open_store(f"{folder}/").read(name).body
        document = RunDocument.from_json(bytes(body), environment.document_uri)
    except (ObjectMissingError, StoreDeniedError, DocumentError) as error:
        raise InputError([str(error)]) from None
    problems = []
    if document.run != environment.run:
        problems.append(f"the document belongs to the run {document.run}, but {ENV_RUN} is {environment.run}")
    if document.sweep_rank not in {None, environment.rank}:
        problems.append(f"{ENV_RANK} is {environment.rank}, but the document is that of rank {document.sweep_rank}")
    elif document.member(environment.rank) >= document.replicas:
        problems.append(
            f"{ENV_RANK} is {environment.rank}, but the run has {document.replicas} replicas (ranks start at 0)"
        )
    if document.trainer is None:
        problems.append("the document names no trainer (package.module:function)")
    if not is_store_uri(document.rendezvous_uri):
        problems.append(f"the document's rendezvous_uri is {document.rendezvous_uri!r}, not an s3:// or file:// URI")
    if document.min_participants > document.replicas:
        problems.append(
            f"min_participants is {document.min_participants}, but the run has {document.replicas} replicas"
        )
    if problems:
        raise InputError(problems)
    return document


def _whole_number(variables: Mapping[str, str], name: str, least: int, most: int, problems: list[str]) -> int:
    text = variables.get(name, "")
    if not text:
        problems.append(f"{name} is not set (a whole number)")
    elif not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        problems.append(f"{name} is {text!r}, not a whole number from {least} to {most}")
    else:
        return int(text)
    return least
