"""Which instance types this release of botocore knows: a remark for the user, never a reason to refuse."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import botocore.session


def unknown_types(names: Iterable[str]) -> list[str]:
    """A remark on every name that botocore's model of SageMaker does not list."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    known: list[str] = model.shape_for("TrainingInstanceType").metadata["enum"]
    remarks = []
    for name in sorted(set(names) - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        remarks.append(f"{name} is not among the types that this release of botocore knows{hint}")
    return remarks
