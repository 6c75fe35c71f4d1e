"""The name that a run gets when it is launched by hand."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

from muster.contract.names import RUN_MAX, run_name
from muster.contract.spec import Spec

_SUFFIX_BYTES = 4  # for those who launch a hundred runs within a second


def execution_name(spec: Spec) -> str:
    """The spec's own name; else one that says what, when, and is new: `digits-trainer-20261121-094500-3f9c07b2`."""
    if spec.name is not None:
        return spec.name
    suffix = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(_SUFFIX_BYTES)}"
    module = spec.trainer.partition(":")[0] if spec.trainer else "run"
    head = re.sub("[._]+", "-", ".".join(module.split(".")[-2:])).strip("-")
    return run_name(f"{head[: RUN_MAX - len(suffix) - 1].strip('-') or 'run'}-{suffix}")
