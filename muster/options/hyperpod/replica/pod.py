"""What a pod was started with: its work, its names and folders."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from muster.contract.training.source_delivery import DEFAULT_BASE_DIR, ENV_BASE_DIR
from muster.options.hyperpod.contract.pod_bootstrap import ENV_POD_ADDRESS, ENV_POD_NAME
from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK, PodWork
from muster.replica.replica_errors import InputError

ENV_POD_FOLDER = "MUSTER_POD_FOLDER"
"""Names the folder through which the pod's first process and the agent's worker share what they know."""
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
    work, problems = None, []
    try:
        work = PodWork.model_validate_json(text)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            place = ".".join(map(str, item["loc"])) or "the document"
            problems.append(f"{ENV_POD_WORK}: {place}: {item['msg']}")
    base = base_of(variables)
    try:
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=base):
            pass
    except OSError as error:
        remedy = "let the container run as a user that may write there, or mount a volume"
        problems.append(f"{base} cannot be written ({error.strerror}): {remedy}")
    if work is None or problems:
        raise InputError(problems)
    name, address = variables.get(ENV_POD_NAME, ""), variables.get(ENV_POD_ADDRESS, "")
    return Pod(work=work, base=base, name=name, address=address)
