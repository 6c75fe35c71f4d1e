"""`muster recipe` on files: without a stack, and without AWS."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from docs.commands_reference import ANSWERS
from muster.client.cli.program import app
from muster.contract.errors import MusterError

BASE = """run:
  name: "{{name}}"
  model_type: llm_finetuning_aws
  results_dir: runs/{{ name }}/out
training_config:
  learning_rate: "{{learning_rate}}"
  max_steps: {{max_steps}}
  optimizer: {name: adamw, lr: "${training_config.learning_rate}"}
"""
OVERRIDE_SPEC = {
    "name": {"type": "string", "required": True, "description": "What the run is called."},
    "learning_rate": {"type": "float", "default": 0.0002, "min": 1e-6, "max": 0.01},
    "max_steps": {"type": "integer", "default": 500, "min": 1},
}
SPEC = """name: llama
replicas: 1
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/llmft:1
instance_type: ml.p5.48xlarge
recipe:
  base: base.yaml
  override_spec: base.json
  inputs: {name: first}
  overrides: {training_config: {max_steps: 1000}}
"""
FILLED = ("--override-spec", "base.json", "--input", "name=first")


@pytest.fixture
def muster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Calls a command in a folder with recipes, where AWS cannot be asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "base.json").write_text(json.dumps(OVERRIDE_SPEC))
    (tmp_path / "jobs").mkdir()
    for name in ("base.yaml", "base.json"):
        (tmp_path / "jobs" / name).write_text((tmp_path / name).read_text())
    (tmp_path / "jobs" / "run.yaml").write_text(SPEC)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["recipe", *arguments])

    return call


def answer(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def values(result: Result) -> dict[str, tuple[object, str]]:
    return {one["path"]: (one["value"], one["origin"]) for one in answer(result)["values"]}


def test_every_value_is_shown_with_its_source(muster: Callable[..., Result]) -> None:
    lines = muster("resolve", "base.yaml", *FILLED, "--set", "max_steps=7").stdout.splitlines()
    assert [line.split() for line in lines[:8]] == [
        ["path", "value", "from"],
        ["run.name", "first", "inputs"],
        ["run.model_type", "llm_finetuning_aws", "base"],
        ["run.results_dir", "runs/first/out", "inputs"],
        ["training_config.learning_rate", "0.0002", "default"],
        ["training_config.max_steps", "7", "overrides"],
        ["training_config.optimizer.name", "adamw", "base"],
        ["training_config.optimizer.lr", "0.0002", "base"],
    ]
    assert lines[8] == ""
    assert lines[9].startswith("base: 7 values, digest ")
    assert [line.split() for line in lines[10:]] == [
        ["base", "3", "base.yaml"],
        ["default", "1", "base.json"],
        ["inputs", "2"],
        ["overrides", "1"],
    ]


def test_the_recipe_of_a_spec_is_the_one_that_its_replicas_get(muster: Callable[..., Result]) -> None:
    shown = values(muster("resolve", "jobs/run.yaml", "--json"))
    assert shown["training_config.max_steps"] == (1000, "overrides")
    # An option replaces an override of the spec, however that is written.
    shown = values(muster("resolve", "jobs/run.yaml", "--set", "training_config.max_steps=2", "--json"))
    assert shown["training_config.max_steps"] == (2, "overrides")


@pytest.mark.parametrize("path", ["learning_rate", "training_config.learning_rate"])
def test_an_option_replaces_what_a_spec_sets_directly(muster: Callable[..., Result], tmp_path: Path, path: str) -> None:
    spec = f"{SPEC}  values: {{learning_rate: 0.001, max_steps: 3}}\n".replace(
        "  overrides: {training_config: {max_steps: 1000}}\n", ""
    )
    (tmp_path / "direct.yaml").write_text(spec)
    assert values(muster("resolve", "direct.yaml", "--json"))["training_config.learning_rate"] == (0.001, "values")
    shown = values(muster("resolve", "direct.yaml", "--set", f"{path}=0.002", "--json"))
    assert shown["training_config.learning_rate"] == (0.002, "overrides")
    assert shown["training_config.max_steps"] == (3, "values")
    # Also where the value of the spec is why it cannot be resolved.
    (tmp_path / "direct.yaml").write_text(spec.replace("0.001", "5"))
    shown = values(muster("resolve", "direct.yaml", "--set", f"{path}=0.002", "--json"))
    assert shown["training_config.learning_rate"] == (0.002, "overrides")


def test_of_a_sweep_the_recipe_of_one_rank_is_shown(muster: Callable[..., Result], tmp_path: Path) -> None:
    swept = SPEC.replace("replicas: 1", "replicas: 2").replace("  overrides: {training_config: {max_steps: 1000}}", "")
    (tmp_path / "sweep.yaml").write_text(f"{swept}\nsweep: {{max_steps: [10, 20]}}\n")
    assert values(muster("resolve", "sweep.yaml", "--json"))["training_config.max_steps"][0] == 10
    shown = muster("resolve", "sweep.yaml", "--rank", "1").stdout
    assert shown.endswith("This is the recipe of rank 1. The others, up to rank 1: --rank.\n")
    assert ["training_config.max_steps", "20", "overrides"] in [line.split() for line in shown.splitlines()]
    assert str(muster("resolve", "sweep.yaml", "--rank", "2").exception) == "rank: found '2'; the ranks are 0 to 1."
    assert "there is no sweep" in str(muster("resolve", "base.yaml", *FILLED, "--rank", "1").exception)


def test_a_users_recipe_is_laid_over_the_base(muster: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("training_config: {learning_rate: 0.001}\n")
    shown = values(muster("resolve", "base.yaml", *FILLED, "--recipe", "mine.yaml", "--json"))
    assert shown["training_config.learning_rate"] == (0.001, "file")
    (tmp_path / "only.yaml").write_text("replicas: 1\nimage: i\ninstance_type: ml.m5.large\nrecipe: base.yaml\n")
    shown = values(muster("resolve", "only.yaml", *FILLED, "--recipe", "mine.yaml", "--json"))
    assert shown["training_config.learning_rate"] == (0.001, "file")


def test_the_yaml_is_what_the_replicas_get_and_resolves_to_itself(
    muster: Callable[..., Result], tmp_path: Path
) -> None:
    first = answer(muster("resolve", "base.yaml", *FILLED, "--json"))
    text = muster("resolve", "base.yaml", *FILLED, "--yaml").stdout
    assert yaml.safe_load(text) == first["document"]
    written = muster("resolve", "base.yaml", *FILLED, "-o", "out.yaml")
    assert written.stdout == "Written to out.yaml.\n"
    assert (tmp_path / "out.yaml").read_text() == text
    assert answer(muster("resolve", "out.yaml", "--json"))["digest"] == first["digest"]


def test_a_value_of_an_option_is_yaml(muster: Callable[..., Result]) -> None:
    options = ("--set", "max_steps=1_000", "--set", "training_config.optimizer.name={a: [1, x]}", "--set", "lr=~")
    shown = values(muster("resolve", "base.yaml", *FILLED, *options, "--json"))
    assert shown["training_config.max_steps"][0] == 1000
    assert shown["training_config.optimizer.name.a"][0] == [1, "x"]
    assert shown["training_config.optimizer.lr"][0] is None


@pytest.mark.parametrize("option", ["--set", "--input"])
@pytest.mark.parametrize("text", ["max_steps", "=1", "max_steps=[1", "max_steps=a: b: c"])
def test_an_option_that_is_no_assignment_is_refused(muster: Callable[..., Result], option: str, text: str) -> None:
    result = muster("resolve", "base.yaml", option, text)
    assert str(result.exception).startswith(f"{option}: found {text!r}; ")


def test_a_template_is_shown_with_what_its_values_may_be(muster: Callable[..., Result]) -> None:
    lines = muster("show", "base.yaml", "--override-spec", "base.json").stdout.splitlines()
    assert lines[0] == "# base: base.yaml"
    assert lines[1 : 1 + BASE.count("\n")] == BASE.splitlines()
    assert [" ".join(line.split()) for line in lines[10:]] == [
        "name type default allowed",
        "name string required any",
        "What the run is called.",
        "learning_rate float 0.0002 1e-06 to 0.01",
        "max_steps integer 500 at least 1",
    ]
    shown = answer(muster("show", "base.yaml", "--override-spec", "base.json", "--json"))
    assert shown["placeholders"] == ["name", "learning_rate", "max_steps"]
    assert "training_config.optimizer.lr" in shown["paths"]


def test_two_recipes_are_compared_once_both_are_resolved(muster: Callable[..., Result]) -> None:
    found = answer(muster("diff", "base.yaml", "jobs/run.yaml", *FILLED, "--json"))
    assert found["differences"] == [{"path": "training_config.max_steps", "change": "changed", "a": 500, "b": 1000}]
    lines = muster("diff", "base.yaml", "jobs/run.yaml", *FILLED).stdout.splitlines()
    assert lines[0].startswith("A  base.yaml, digest ")
    assert lines[-1].split() == ["~", "training_config.max_steps", "500", "1000"]
    assert muster("diff", "base.yaml", "base.yaml", *FILLED).stdout.endswith("The recipes are the same.\n")


def test_every_recipe_is_checked_and_every_problem_listed(muster: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(
        f"{SPEC.replace('max_steps: 1000', 'learning_rate: 2, max_stps: 5')}trainr: x\n"
    )
    (tmp_path / "tab.yaml").write_text("a: 1\n\tb: 2\n")
    result = muster("validate", "jobs/run.yaml", "broken.yaml", "tab.yaml", "none.yaml")
    assert result.exit_code == 2
    valid, *others = result.stdout.splitlines()
    assert valid.startswith("jobs/run.yaml: valid, 7 values, digest ")
    assert others[0] == "broken.yaml: 3 problems"
    fields = [line.split(": ")[0] for line in others[1:4]]
    assert sorted(fields) == [
        "  - recipe.training_config.learning_rate (overrides)",
        "  - recipe.training_config.max_stps (overrides)",
        "  - trainr",
    ]
    assert others[4] == "tab.yaml: 1 problem"
    assert "(base: tab.yaml): line 2, column 1: a tab" in others[5]
    assert others[6].startswith("none.yaml: The recipe none.yaml cannot be read: no such file or directory.")
    assert muster("validate", "jobs/run.yaml").exit_code == 0


def test_checked_recipes_as_json(muster: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "tab.yaml").write_text("a: 1\n\tb: 2\n")
    result = muster("validate", "tab.yaml", "jobs/run.yaml", "--json")
    assert result.exit_code == 2
    bad, good = json.loads(result.stdout)["recipes"]
    assert (bad["digest"], bad["error"]["problems"][0]["field"]) == (None, "recipe (base: tab.yaml)")
    assert (len(good["digest"]), good["error"]) == (64, None)


def test_a_recipe_in_s3_that_cannot_be_reached_is_no_bad_input(muster: Callable[..., Result]) -> None:
    result = muster("validate", "s3://bucket/recipe.yaml")
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith("s3://bucket/recipe.yaml: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resolve",), "no recipe is named"),
        (("resolve", "base.yaml", "--hub-model", "m"), "two recipes are named"),
        (("resolve", "base.yaml", "--technique", "SFT"), "--technique needs --hub-model"),
        (("show", "base.yaml", "--hub-recipe", "x"), "--hub-recipe needs --hub-model"),
        (("list",), "name a checkout"),
        (("list", "--checkout", "none"), "No recipes can be listed: none is not a folder"),
        (("list", "--checkout", "jobs"), "No recipes can be listed: jobs has no recipes: there is none of"),
        (("resolve", "none.yaml"), "The recipe none.yaml cannot be read"),
        (("resolve", "base.yaml", *FILLED, "-o", "no/out.yaml"), "The recipe cannot be written to no/out.yaml"),
    ],
)
def test_a_mistake_is_one_line(muster: Callable[..., Result], arguments: tuple[str, ...], words: str) -> None:
    error = muster(*arguments).exception
    assert isinstance(error, MusterError)
    assert words in str(error)
    assert "\n" not in str(error)


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    folder = tmp_path / "clone" / "recipes_collection" / "recipes" / "fine-tuning" / "llama"
    folder.mkdir(parents=True)
    for name in ("llmft_llama3_1_8b_seq4k_gpu_sft_lora", "llmft_llama3_1_8b_seq8k_gpu_dpo"):
        (folder / f"{name}.yaml").write_text(f"run: {{name: {name}}}\n")
    (tmp_path / "clone" / ".git").mkdir()
    (tmp_path / "clone" / ".git" / "x.yaml").write_text("a: 1\n")
    return "clone"


def test_the_recipes_of_a_checkout_are_listed_and_resolved(muster: Callable[..., Result], checkout: str) -> None:
    found = answer(muster("list", "--checkout", checkout, "--json"))["recipes"]
    assert [one["name"].rpartition("_")[2] for one in found] == ["lora", "dpo"]
    lines = muster("list", "--checkout", checkout, "--model", "Llama-3.1", "--technique", "sft").stdout.splitlines()
    name = "fine-tuning/llama/llmft_llama3_1_8b_seq4k_gpu_sft_lora"
    assert [line.split() for line in lines] == [["technique", "type", "tokens", "recipe"], ["SFT", "LORA", "4K", name]]
    assert values(muster("resolve", name, "--checkout", checkout, "--json"))["run.name"][1] == "base"
    wrong = muster("resolve", name.replace("lora", "lra"), "--checkout", checkout)
    assert f"did you mean {name}?" in str(wrong.exception)


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("muster recipe res", ["resolve"]),
        ("muster recipe resolve base.yaml --set training_config.m", ["training_config.max_steps="]),
        ("muster recipe validate jobs/run.yaml --set run.", ["run.name=", "run.model_type=", "run.results_dir="]),
        ("muster recipe diff base.yaml x.yaml --input l", ["learning_rate="]),
        ("muster recipe resolve --checkout clone fine-tuning/llama/llmft_llama3_1_8b_seq8", ["dpo"]),
        # AWS is not asked, and a file that cannot be read has no names.
        ("muster recipe resolve s3://bucket/a.yaml --set ", []),
        ("muster recipe resolve none.yaml --set ", []),
        ("muster recipe resolve --set ", []),
        ("muster recipe resolve ", []),
    ],
)
def test_the_shell_completes_recipes_paths_and_placeholders(
    muster: Callable[..., Result], checkout: str, line: str, completed: list[str]
) -> None:
    words = line.split(" ")
    asked = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    found = CliRunner().invoke(app, [], env=asked, prog_name="muster").stdout.split()
    assert len(found) == len(completed)
    assert all(one.endswith(end) for one, end in zip(found, completed, strict=True))


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--checkout", "clone"),
        ("show", "base.yaml", "--override-spec", "base.json"),
        ("resolve", "jobs/run.yaml"),
        ("diff", "base.yaml", "jobs/run.yaml", *FILLED),
        ("validate", "jobs/run.yaml", "base.yaml"),
    ],
)
def test_an_answer_in_json_has_the_fields_that_are_promised(
    muster: Callable[..., Result], checkout: str, arguments: tuple[str, ...]
) -> None:
    line = muster(*arguments, "--json").stdout
    model = ANSWERS[f"recipe {arguments[0]}"]
    assert model.model_validate_json(line).model_dump(mode="json") == json.loads(line)
    assert line.count("\n") == 1
