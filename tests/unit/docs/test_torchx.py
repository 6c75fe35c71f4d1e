"""docs/torchx.md maps every option that TorchX's aws_sagemaker scheduler had."""

from __future__ import annotations

import re
from pathlib import Path

from docs.generate import DOCS
from muster.contract.spec.spec import Spec
from tests.support.torchx_options import OPTIONS

# It steered TorchX's own output while it built an image.
WITHOUT_COUNTERPART = {"quiet"}


ROOT = Path(__file__).resolve().parents[3]
TESTS = [
    ROOT / "tests" / "unit" / "torchx" / "test_torchx_translate.py",
    ROOT / "tests" / "unit" / "torchx" / "test_states.py",
    ROOT / "tests" / "integration" / "client" / "test_torchx_scheduler.py",
    ROOT / "tests" / "e2e" / "test_torchx.py",
]
# What differs from the former scheduler, and the test that shows it.
DIFFERENCES = {
    "the code": "test_a_workspace_becomes_the_source",
    "a script that is missing": "test_a_script_that_is_not_in_the_workspace_is_refused",
    "a role with an empty entrypoint": "test_a_script_runs_as_it_did",
    "a role with the entrypoint `python`": "test_a_script_runs_as_it_did",
    "hyperparameters": "test_a_script_runs_as_it_did",
    "variables of SageMaker's toolkit": "test_a_script_under_torchrun_has_the_toolkits_variables",
    "arguments": "test_a_command_reaches_the_program_as_it_was_written",
    "several instances": "test_torchrun_is_a_group_of_its_own_in_each_replica",
    "`instance_count=0`": "test_no_instance_is_none",
    "`checkpoint_s3_uri`": "test_a_checkpoint_prefix_is_exact_where_asked",
    "`model_channel_name` without `model_uri`": "test_a_channel_name_without_a_model_is_refused",
    "a role by its name": "test_a_role_is_named_or_has_an_arn",
    "`torchx status`": "test_a_job_that_is_being_prepared_is_pending",
    "`torchx log`, `torchx list`": "test_an_application_is_run_and_told_by_torchxs_own_commands",
    "a request that is scheduled twice": "test_the_python_interface_does_the_same",
    "`torchx run --dryrun --json` of the nightly": "test_a_request_is_json",
}


def rows() -> list[list[str]]:
    _, _, section = (DOCS / "torchx.md").read_text(encoding="utf-8").partition("## From aws_sagemaker")
    lines = section.partition("| option of TorchX |")[2].splitlines()
    return [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")
    ]


def test_every_option_is_mapped_once_and_no_other() -> None:
    assert [option for option, _, _ in rows()] == OPTIONS


def test_every_counterpart_is_a_field_of_the_spec() -> None:
    for option, field, remark in rows():
        assert field in Spec.model_fields or (option in WITHOUT_COUNTERPART and remark), option


def test_every_difference_has_a_test() -> None:
    text = (DOCS / "torchx.md").read_text(encoding="utf-8")
    table = text.partition("| what | aws_sagemaker | Muster |\n|---|---|---|\n")[2].partition("\n\n")[0]
    named = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()]
    assert named == list(DIFFERENCES)
    there = {name for path in TESTS for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
    assert set(DIFFERENCES.values()) - there == set()
