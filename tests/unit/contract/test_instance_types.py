"""Which instance types have disks of their own: a family that botocore learns of is decided here."""

from __future__ import annotations

import botocore.session
import pytest

from muster.contract.aws.instance_types import TRAINING_INSTANCE_TYPES
from muster.contract.training.resources import has_own_disks

# EC2, "Amazon EBS-only" families of the training types.
EBS_ONLY = {
    *("c4", "c5", "c5n", "c6i", "c7i", "c7i-flex", "c8i", "c8i-flex"),
    *("m4", "m5", "m6i", "m7i", "m7i-flex", "m8i", "m8i-flex"),
    *("r5", "r6i", "r7i", "r8i", "r8i-flex", "t3", "p2", "p3"),
}


def test_every_family_either_has_disks_of_its_own_or_a_volume() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    types = model.shape_for("TrainingInstanceType").metadata["enum"]
    assert {name.split(".")[1] for name in types if not has_own_disks(name)} == EBS_ONLY


def test_the_table_of_types_is_that_of_the_pinned_botocore() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    assert set(model.shape_for("TrainingInstanceType").metadata["enum"]) == TRAINING_INSTANCE_TYPES


@pytest.mark.parametrize("family", ["g7", "g7e", "p6-b300", "p6e-gb200"])
def test_the_newest_families_have_disks_of_their_own(family: str) -> None:
    assert has_own_disks(f"ml.{family}.48xlarge")
