"""The input of an execution, which starts a run."""

from __future__ import annotations

from muster.contract.document import canonical_json
from muster.contract.errors import Problem, SpecError
from muster.contract.spec.spec import SPEC_BYTES_MAX, Spec

INBOX = "inbox/"
"""A spec that is put under this prefix of the stack's bucket starts a run."""
INBOX_SUFFIXES = (".json", ".yaml", ".yml")


def execution_input(spec: Spec) -> str:
    """The spec as canonical JSON: the same spec gives the same input. Defaults are left out, for the stack to add.

    Raises:
        SpecError: it is larger than the input of an execution can be.
    """
    document = canonical_json(spec.model_dump(mode="json", exclude_unset=True))
    if len(document) > SPEC_BYTES_MAX:
        raise SpecError(
            [Problem("the spec", f"{len(document):,} bytes", f"at most {SPEC_BYTES_MAX:,}: keep data in S3")]
        )
    return document.decode()
