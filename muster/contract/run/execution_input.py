"""What starts a run: the input of its execution."""

from __future__ import annotations

from muster.contract.document import canonical_json
from muster.contract.errors import Problem, SpecError
from muster.contract.spec.spec import SPEC_BYTES_MAX, Spec

INBOX = "inbox/"
"""Specs that are put under this prefix of the stack's bucket are started."""
INBOX_SUFFIXES = (".json", ".yaml", ".yml")


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
