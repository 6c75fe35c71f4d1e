"""docs/torchx.md maps every option that TorchX's aws_sagemaker scheduler had."""

from __future__ import annotations

from docs.generate import DOCS
from muster.contract.spec.spec import Spec
from tests.support.torchx_options import OPTIONS

# It steered TorchX's own output while it built an image.
WITHOUT_COUNTERPART = {"quiet"}


def rows() -> list[list[str]]:
    _, _, section = (DOCS / "torchx.md").read_text(encoding="utf-8").partition("## From aws_sagemaker")
    lines = section.splitlines()
    return [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")
    ]


def test_every_option_is_mapped_once_and_no_other() -> None:
    assert [option for option, _, _ in rows()] == OPTIONS


def test_every_counterpart_is_a_field_of_the_spec() -> None:
    for option, field, remark in rows():
        assert field in Spec.model_fields or (option in WITHOUT_COUNTERPART and remark), option
