"""What a pod was started with: its work, its names and folders. All errors at once."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from muster.contract.errors import DocumentError
from muster.contract.layout import split_s3_uri
from muster.contract.run.notices import NOTICES
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.options.hyperpod.contract.pod_bootstrap import ENV_POD_ADDRESS, ENV_POD_NAME
from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK, PodWork
from muster.replica.replica_errors import InputError

ENV_POD_FOLDER = "MUSTER_POD_FOLDER"
"""Names the folder through which the pod's first process and the agent's worker share what they know."""
_JOB = re.compile(r".+-r(0|[1-9]\d{0,3})-a[1-9]\d{0,2}")
_CHANNEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NUMBER = re.compile(r"-(\d{1,4})$")


@dataclass(frozen=True)
class Pod:
    """A pod and its work.

    Attributes:
        base: stands for /opt/ml.
        address: by which the other pods and the operator reach it; empty where it is not known.
    """

    work: PodWork
    base: Path
    name: str = ""
    address: str = ""

    @property
    def number(self) -> int:
        """The pod's number in its job, from its name; 0 where that has none."""
        found = _NUMBER.search(self.name)
        return int(found[1]) if found else 0


def base_of(variables: Mapping[str, str]) -> Path:
    """The folder that stands for /opt/ml."""
    return Path(variables.get(ENV_BASE_DIR) or DEFAULT_BASE_DIR)


def read_pod(variables: Mapping[str, str]) -> Pod:
    """The pod from its environment.

    Raises:
        InputError: lists everything that is missing or wrong.
    """
    text = variables.get(ENV_POD_WORK, "")
    if not text:
        raise InputError([f"{ENV_POD_WORK} is not set (the work of the pod, as JSON)"])
    work = _work(text)
    problems = _problems(work)
    if not _JOB.fullmatch(work.job):
        problems.append(f"{ENV_POD_WORK}: job is {work.job!r}; allowed: a name that ends with -r0-a1 (rank, attempt)")
    if not _is_of_notices(work.notices_uri):
        problems.append(f"{ENV_POD_WORK}: notices_uri is {work.notices_uri!r}; allowed: s3://bucket/{NOTICES}RUN/")
    base = base_of(variables)
    problems += _unusable(base)
    if problems:
        raise InputError(problems)
    return Pod(
        work=work,
        base=base,
        name=variables.get(ENV_POD_NAME, ""),
        address=variables.get(ENV_POD_ADDRESS, ""),
    )


def _work(text: str) -> PodWork:
    try:
        return PodWork.model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        where = [".".join(map(str, item["loc"])) or "the document" for item in found]
        raise InputError(
            [f"{ENV_POD_WORK}: {place}: {item['msg']}" for place, item in zip(where, found, strict=True)]
        ) from None
    except DocumentError as error:
        raise InputError([str(error)]) from None


def _problems(work: PodWork) -> list[str]:
    problems = []
    folders = {"checkpoints_uri": work.checkpoints_uri, "output_uri": work.output_uri}
    uris = {**folders, **{f"channels.{item.name}.uri": item.uri for item in work.channels}}
    for field, uri in uris.items():
        try:
            split_s3_uri(uri)
        except ValueError:
            problems.append(f"{ENV_POD_WORK}: {field} is {uri!r}; allowed: s3://bucket/prefix")
    names = [item.name for item in work.channels]
    for name in sorted(set(names)):
        if not _CHANNEL.fullmatch(name) or name in {".", ".."}:
            allowed = "1 to 64 letters, digits, dots, hyphens and underscores"
            problems.append(f"{ENV_POD_WORK}: a channel has the name {name!r}; allowed: {allowed}")
        if names.count(name) > 1:
            problems.append(f"{ENV_POD_WORK}: {names.count(name)} channels have the name {name!r}; allowed: one")
    return problems


def _is_of_notices(uri: str) -> bool:
    """Whether the notices of a run may lie there."""
    try:
        _, prefix = split_s3_uri(uri)
    except ValueError:
        return False
    return re.fullmatch(f"{NOTICES}[^/]+/", prefix) is not None


def _unusable(base: Path) -> list[str]:
    """Why nothing can be written below `base`; nothing where it can."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base):
            return []
    except OSError as error:
        remedy = "let the container run as a user that may write there, or mount a volume"
        return [f"{base} cannot be written ({error.strerror}): {remedy}"]
