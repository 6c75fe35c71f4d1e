"""What `muster plan` predicts and what a status shows beside it."""

import json
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from muster.client.cli.dry_run_text import dry_run_lines
from muster.client.cli.program import app
from muster.client.cli.status_table import status_lines
from muster.client.launch.dry_run import dry_run
from muster.client.runs.observer import Observer
from muster.contract.layout import RunLayout
from muster.contract.run.commit import Commit
from muster.contract.run.forecast import Forecast
from muster.contract.run.time_use import TimeUse
from muster.contract.spec.spec_reader import parse_spec
from muster.options.forecast.client.forecast_options import ForecastOptions
from muster.options.forecast.client.predictions import ForecastError, planned
from tests.memory.harness import RUN, SPEC, ControlHarness
from tests.support.memory_client import client_of, muster_of
from tests.support.round_commits import commit_of, member

TRAINED: dict[str, Any] = {"replicas": 4, "trainer": "m:f", "instance_type": "ml.g5.xlarge"}
SIZE: dict[str, Any] = {"parameters": 124e6, "step_seconds": 0.25}


def forecast(spec: dict[str, Any], harness: ControlHarness | None = None, **asked: Any) -> Forecast | None:
    spec = {**TRAINED, **spec}
    return planned(ForecastOptions(**asked), spec, dry_run(parse_spec(spec)), lambda: muster_of(harness.cloud))  # type: ignore[union-attr]


def problems(spec: dict[str, Any], **asked: Any) -> dict[str, str]:
    with pytest.raises(ForecastError) as error:
        forecast(spec, **asked)
    return {one.field: str(one) for one in error.value.problems}


def test_a_plan_predicts_only_what_was_asked() -> None:
    assert forecast({"kwargs": {"sync_every": 100}}) is None
    found = forecast({"kwargs": {"sync_every": 100}}, **SIZE, step_samples=8192, target_utilisation=0.9)
    assert found is not None
    lines = list(dry_run_lines(dry_run(parse_spec(TRAINED)).model_copy(update={"forecast": found})))
    begin = lines.index("Predicted for 124,000,000 parameters and 0.25 s a step, not measured:")
    assert lines[begin + 1].startswith("  sync_every 100, codec fp32: 25 s of training, ")
    assert lines[begin + 2].startswith("  In an exchange a replica sends 620 MB and receives 744 MB")
    assert lines[begin + 3].startswith("  A million samples cost $")
    assert lines[begin + 4].startswith("  For 90.0%: sync_every ")
    assert found.proposal is not None
    assert found.proposal.utilisation >= 0.9
    # The 4 replicas train 4 x 8192 samples a step, for as much of the time as is predicted.
    per_hour = dry_run(parse_spec(TRAINED)).cost.per_hour or 0
    samples = 4 * 8192 / 0.25 * found.phase.utilisation * 3600
    assert found.usd_per_million == pytest.approx(per_hour / samples * 1e6)


def test_the_command_takes_the_options_and_answers_with_the_forecast(tmp_path: Path) -> None:
    spec = tmp_path / "run.yaml"
    spec.write_text("replicas: 2\ntrainer: package.module:train\n", encoding="utf-8")
    words = ["plan", str(spec), "--parameters", "124e6", "--step-seconds", "0.3", "--algorithm", "codec=int4"]
    done = CliRunner().invoke(app, [*words, "--target-utilisation", "0.95", "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)["forecast"]
    assert answer["phase"]["settings"]["codec"] == "int4"
    assert answer["proposal"]["utilisation"] >= 0.95
    refused = CliRunner().invoke(app, ["plan", str(spec), "--link-gbps", "0"])
    assert isinstance(refused.exception, ForecastError)


def test_settings_come_from_kwargs_and_from_the_command() -> None:
    kwargs = {"sync_every": 100, "codec": {"near": "int8", "far": "int4"}, "lr": 0.1}
    found = forecast({"kwargs": kwargs}, **SIZE, algorithm=["delay=10", "codec=bf16"])
    assert found is not None
    assert found.phase.settings.model_dump(exclude_defaults=True) == {
        "sync_every": 100,
        "codec": "bf16",
        "far_codec": "int4",
        "delay": 10,
    }
    assert any("no sync_every" in words for words in (forecast({}, **SIZE) or found).assumed)


def test_each_option_and_setting_that_cannot_be_used_is_one_problem() -> None:
    found = problems(
        {"kwargs": {"sync_every": 0}},
        parameters=0,
        link_gbps=-1,
        link_seconds=61,
        target_utilisation=1,
        algorithm=["codec=int5"],
    )
    assert set(found) == {
        *("--parameters", "--step-seconds", "--link-gbps", "--link-seconds", "--target-utilisation"),
        *("kwargs sync_every", "--algorithm codec"),
    }
    assert found["--parameters"] == "--parameters: found 0; Input should be greater than or equal to 1; correct it"
    assert found["--step-seconds"] == "--step-seconds: not set; set it, or add --like RUN"
    fragments = problems({"kwargs": {"sync_every": 10, "fragments": 3}}, **SIZE)
    assert "it does not fit into sync_every 10" in fragments["kwargs fragments"]


def test_a_sweep_has_no_exchange_to_predict() -> None:
    swept = {"sweep": {"kwargs.lr": [1, 2, 3, 4]}}
    assert forecast(swept) is None
    assert problems(swept, **SIZE) == {
        "sweep": "sweep: its replicas exchange nothing that could be predicted; leave the options that predict out"
    }


@pytest.mark.parametrize(
    "odd",
    [
        *({"parameters": 0.3}, {"parameters": 1e308}, {"step_seconds": 1e-310}, {"step_seconds": 1e308}),
        *({"step_samples": 1e-320}, {"step_samples": 1e308}, {"link_gbps": 1e-310}, {"link_gbps": 1e308}),
    ],
)
def test_numbers_of_no_training_are_refused(odd: dict[str, float]) -> None:
    [name] = odd
    assert (
        "Input should be" in problems({}, **{**SIZE, **odd, "target_utilisation": 0.9})[f"--{name.replace('_', '-')}"]
    )


@pytest.mark.parametrize("parameters", [1, 1e15])
@pytest.mark.parametrize("step_seconds", [1e-6, 1e6])
@pytest.mark.parametrize("step_samples", [1e-6, 1e15])
def test_a_forecast_of_the_smallest_and_the_largest_numbers_is_finite(
    parameters: float, step_seconds: float, step_samples: float
) -> None:
    size = {"parameters": parameters, "step_seconds": step_seconds, "step_samples": step_samples}
    far = {"replicas": 4, "places": {"home": 2, "oregon": 2}, "kwargs": {"sync_every": 100}}
    for link_gbps in (1e-6, 1e6):
        found = forecast(far, **size, link_gbps=link_gbps, target_utilisation=0.9)
        assert found is not None
        assert found.usd_per_million is not None
        assert isfinite(found.usd_per_million)
        assert isfinite(found.phase.exchange_seconds)
        assert 0 < found.phase.utilisation <= 1


LADDER = {"ladder": [{"place": "home"}, {"place": "oregon"}, {"place": "frankfurt"}]}
FIXED = {"home": 4, "oregon": 4}


@pytest.mark.parametrize(
    ("replicas", "places", "counted", "crossing"),
    [
        (1, LADDER, 1, 0),
        (2, LADDER, 2, 1),
        (8, LADDER, 8, 2),
        ({"min": 1, "start": 2, "max": 8}, LADDER, 2, 1),
        ({"min": 1, "start": 2, "max": 8}, FIXED, 2, 0),
        ({"min": 1, "start": 6, "max": 8}, FIXED, 6, 1),
    ],
)
def test_the_replicas_that_a_plan_predicts_are_those_that_it_prices(
    replicas: Any, places: dict[str, Any], counted: int, crossing: int
) -> None:
    spec = {"replicas": replicas, "places": places, "kwargs": {"sync_every": 100}}
    found = forecast(spec, **SIZE)
    assert found is not None
    one = dry_run(parse_spec({**TRAINED, "replicas": 1})).cost.per_hour or 0
    priced = dry_run(parse_spec({**TRAINED, **spec})).cost.per_hour or 0
    assert (found.replicas, priced) == (counted, pytest.approx(counted * one))
    # Each place beside home sends its sum there, and reads the mean.
    assert found.crossed_bytes == crossing * 2 * 4 * SIZE["parameters"]


def test_a_plan_over_places_says_what_crosses_and_what_it_assumes_of_the_link() -> None:
    places = {"replicas": 4, "places": {"home": 2, "oregon": 2}, "kwargs": {"sync_every": 500}}
    found, slower = forecast(places, **SIZE), forecast(places, **SIZE, link_gbps=1, link_seconds=0.2)
    assert found is not None
    assert slower is not None
    assert found.crossed_bytes == 2 * 4 * 124e6
    assert any("5 Gb/s and 0.15 s" in words for words in found.assumed)
    assert slower.phase.exchange_seconds > found.phase.exchange_seconds + 2


def trained(harness: ControlHarness, count: int = 124_000_000, seconds: float = 50.0) -> Commit:
    """Start a run whose first round is committed: 100 steps of 0.5 s, of which its replicas tell."""
    started(harness)
    return committed(harness, 1, 100, count=count, seconds=seconds)


def started(harness: ControlHarness, **settings: int) -> None:
    fields = {"kwargs": {"sync_every": 100, "codec": "int8", **settings}, "instance_type": "ml.g5.xlarge"}
    harness.executions.start(RUN, json.dumps({**SPEC, "replicas": 2, **fields}))


def committed(harness: ControlHarness, number: int, steps: int, seconds: float = 50.0, **fields: Any) -> Commit:
    """Commit a round of so many steps."""
    members = [member(rank, weight=8.0 * steps, seconds=seconds) for rank in range(2)]
    use = TimeUse(rounds=1, spent=(90_000, 6_000, 4_000))
    usual = {"count": 124_000_000, "committed_at": "2026-01-01T00:01:00Z", "time_use": use}
    made = commit_of(members, run=RUN, round=number, **{**usual, **fields})
    harness.plane.store.create(RunLayout(RUN).commit(number), made.to_json())
    return made


def test_a_status_shows_what_was_predicted_beside_what_was_measured(harness: ControlHarness) -> None:
    trained(harness)
    status = Observer(client_of(harness.cloud), RUN).look()
    found = status.forecast
    assert found is not None
    assert (found.parameters, found.step_seconds, found.step_samples) == (124_000_000, 0.5, 8.0)
    assert found.measured_utilisation == pytest.approx(0.9)
    line = f"utilisation 90.0%, predicted {found.phase.utilisation:.1%} (50 s of training, exchange "
    assert any(one.text.startswith(line) for one in status_lines(status, 120, None))
    assert json.loads(status.to_line())["forecast"]["phase"]["settings"]["codec"] == "int8"


def test_a_phase_that_ended_with_the_training_says_nothing_of_a_step(harness: ControlHarness) -> None:
    trained(harness)
    observer = Observer(client_of(harness.cloud), RUN)
    committed(harness, 2, 10, seconds=5.0)
    for look in (observer, observer, Observer(client_of(harness.cloud), RUN)):
        found = look.look().forecast
        assert found is not None
        assert (found.step_seconds, found.step_samples) == (0.5, 8.0)
    committed(harness, 3, 100, seconds=60.0)
    found = observer.look().forecast
    assert found is not None
    assert found.step_seconds == 0.6


def test_nothing_is_predicted_before_each_fragment_has_had_a_whole_phase(harness: ControlHarness) -> None:
    started(harness, fragments=4)
    for number in (1, 2, 3):
        committed(harness, number, 25 * number, seconds=12.5 * number, fragments=4)
        assert Observer(client_of(harness.cloud), RUN).look().forecast is None
    committed(harness, 4, 100, fragments=4)
    found = Observer(client_of(harness.cloud), RUN).look().forecast
    assert found is not None
    assert (found.step_seconds, found.step_samples) == (0.5, 8.0)


def test_a_plan_learns_from_a_run(harness: ControlHarness) -> None:
    trained(harness)
    found = forecast({"replicas": 8}, harness, like=RUN, algorithm=["codec=int4"])
    assert found is not None
    assert (found.parameters, found.replicas, found.step_seconds) == (124_000_000, 8, 0.5)
    assert found.phase.settings.model_dump(exclude_defaults=True) == {"sync_every": 100, "codec": "int4"}


def test_a_commit_that_says_what_no_model_has_breaks_no_status(harness: ControlHarness) -> None:
    made = trained(harness, count=10**400)
    assert made.count == 10**400
    found = Observer(client_of(harness.cloud), RUN).look().forecast
    assert found is not None
    assert found.parameters == 10**15


def test_a_run_that_says_what_no_training_has_is_no_basis(harness: ControlHarness) -> None:
    trained(harness, seconds=1e-300)
    assert Observer(client_of(harness.cloud), RUN).look().forecast is not None
    with pytest.raises(ForecastError, match="--step-seconds: found 1e-302"):
        forecast({}, harness, like=RUN, target_utilisation=0.9)


def test_a_run_that_does_not_say_how_it_trains_is_no_basis(harness: ControlHarness) -> None:
    harness.plan(replicas=2)
    harness.plane.store.create(RunLayout(RUN).commit(1), commit_of([0, 1], run=RUN).to_json())
    assert Observer(client_of(harness.cloud), RUN).look().forecast is None
    with pytest.raises(ForecastError, match=f"--like: {RUN} does not say how it trains"):
        forecast({}, harness, like=RUN)
