"""The name that a run gets when it is launched by hand."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

from muster.contract.names import RERUNS_MAX, RUN_MAX, numbered_run_name, run_name
from muster.contract.spec.spec import Spec

# Five of them: a hundred runs that are launched within one second almost surely have names of their own. Letters that
# are taken for others are left out, and x, which numbers the runs that a run goes on as.
_MARKS = "0123456789abcdefghjkmnpqrstvwyz"
_MARK_LENGTH = 5
_CONTINUATION_LENGTH = len(numbered_run_name("", RERUNS_MAX + 1))


def execution_name(spec: Spec) -> str:
    """The spec's own name; else one that says what, when, and is new: `digits-trainer-20261121-094500-3f9c0`.

    It leaves room for the number of a run that goes on from it.
    """
    if spec.name is not None:
        return spec.name
    mark = "".join(secrets.choice(_MARKS) for _ in range(_MARK_LENGTH))
    suffix = f"-{datetime.now(UTC):%Y%m%d-%H%M%S}-{mark}"
    module = spec.trainer.partition(":")[0] if spec.trainer else "run"
    head = re.sub("[._]+", "-", ".".join(module.split(".")[-2:])).strip("-")
    head = head[: RUN_MAX - _CONTINUATION_LENGTH - len(suffix)].strip("-")
    return run_name(f"{head or 'run'}{suffix}")
