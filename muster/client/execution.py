"""What StartExecution is given for a spec: a name and an input."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

from muster.contract.document import canonical_json
from muster.contract.errors import Problem, SpecError
from muster.contract.names import RUN_MAX, run_name
from muster.contract.spec import SPEC_BYTES_MAX, Spec


def execution_name(spec: Spec) -> str:
    """The spec's own name; else one that says what, when, and is new: `digits-trainer-20261121-094500-3f9c`."""
    if spec.name is not None:
        return spec.name
    suffix = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    module = spec.trainer.partition(":")[0] if spec.trainer else "run"
    head = re.sub("[._]+", "-", ".".join(module.split(".")[-2:])).strip("-")
    return run_name(f"{head[: RUN_MAX - len(suffix) - 1].strip('-') or 'run'}-{suffix}")


def execution_input(spec: Spec) -> str:
    """What the user wrote, as canonical JSON: the same spec gives the same input. Defaults are left to the stack.

    Raises:
        SpecError: it is larger than an execution's input may be.
    """
    document = canonical_json(spec.model_dump(mode="json", exclude_unset=True))
    if len(document) > SPEC_BYTES_MAX:
        raise SpecError(
            [Problem("the spec", f"{len(document):,} bytes", f"at most {SPEC_BYTES_MAX:,}: keep data in S3")]
        )
    return document.decode()
