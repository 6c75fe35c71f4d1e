"""The commands of `muster faults` follow from the models of the faults."""

from __future__ import annotations

import typer
import typer.main
from typer.testing import CliRunner

from muster.local.commands.fault_commands import app
from muster.local.faults import FaultBase, RateLimit

COMMON = {"as_json", "state"}


def kinds(base: type[FaultBase]) -> dict[str, type[FaultBase]]:
    """The models of faults by their kind."""
    found = {
        model.model_fields["kind"].default: model for model in base.__subclasses__() if "kind" in model.model_fields
    }
    return found | {kind: model for sub in base.__subclasses__() for kind, model in kinds(sub).items()}


def test_every_fault_is_a_command_and_every_field_a_parameter() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    models = kinds(FaultBase)
    assert set(models) - set(commands) == {RateLimit.model_fields["kind"].default}  # `throttle` covers it
    assert set(commands) - set(models) == {"list", "clear", "throttle"}
    for kind in models.keys() & commands.keys():
        parameters = {parameter.name for parameter in commands[kind].params}
        assert parameters == (models[kind].model_fields.keys() - {"kind"}) | COMMON, kind


def test_an_option_without_a_default_is_required() -> None:
    outcome = CliRunner().invoke(app, ["small-volume", "job"])
    assert outcome.exit_code == 2
    assert "Missing option '--gigabyte-bytes'" in outcome.output


def test_a_value_out_of_range_is_a_usage_error_before_any_cloud_is_asked() -> None:
    for line in ("crash job --exit-code 256", "slow-start job --seconds 0", "event mangle job", "crash job --count 0"):
        outcome = CliRunner().invoke(app, line.split())
        assert outcome.exit_code == 2, line
        assert "Invalid value" in outcome.output
