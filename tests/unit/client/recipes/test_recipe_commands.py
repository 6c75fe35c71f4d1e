"""`muster recipe` on files: without a stack, and without AWS."""

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
OVERRIDES = "  overrides: {training_config: {max_steps: 1000}}\n"
FILLED = ("--override-spec", "base.json", "--input", "name=first")


Muster = Callable[..., Result]


@pytest.fixture
def muster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Muster:
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


def test_an_option_replaces_what_a_spec_sets(muster: Muster, tmp_path: Path) -> None:
    shown = values(muster("resolve", "jobs/run.yaml", "--json"))
    assert shown["training_config.max_steps"] == (1000, "overrides")
    # An option replaces an override of the spec, however that is written.
    shown = values(muster("resolve", "jobs/run.yaml", "--set", "training_config.max_steps=2", "--json"))
    assert shown["training_config.max_steps"] == (2, "overrides")
    spec = SPEC.replace(OVERRIDES, "  values: {learning_rate: 0.001, max_steps: 3}\n")
    (tmp_path / "direct.yaml").write_text(spec)
    assert values(muster("resolve", "direct.yaml", "--json"))["training_config.learning_rate"] == (0.001, "values")
    for path in ("learning_rate", "training_config.learning_rate"):
        # Also where the value of the spec is why it cannot be resolved.
        for text in (spec, spec.replace("0.001", "5")):
            (tmp_path / "direct.yaml").write_text(text)
            shown = values(muster("resolve", "direct.yaml", "--set", f"{path}=0.002", "--json"))
            assert shown["training_config.learning_rate"] == (0.002, "overrides"), path
            assert shown["training_config.max_steps"] == (3, "values")


def test_of_a_sweep_the_recipe_of_one_rank_is_shown(muster: Muster, tmp_path: Path) -> None:
    swept = SPEC.replace("replicas: 1", "replicas: 2").replace(OVERRIDES, "sweep: {max_steps: [10, 20]}\n")
    (tmp_path / "sweep.yaml").write_text(swept)
    assert values(muster("resolve", "sweep.yaml", "--json"))["training_config.max_steps"][0] == 10
    shown = muster("resolve", "sweep.yaml", "--rank", "1").stdout
    assert "This is the recipe of rank 1." in shown
    assert ["training_config.max_steps", "20", "overrides"] in [line.split() for line in shown.splitlines()]
    assert str(muster("resolve", "sweep.yaml", "--rank", "2").exception).startswith("rank: found '2'; ")
    assert "there is no sweep" in str(muster("resolve", "base.yaml", *FILLED, "--rank", "1").exception)


def test_the_model_of_a_spec_is_one_of_its_recipe(muster: Muster, tmp_path: Path) -> None:
    model = "  model_config: {model_name_or_path: '{{model_name_or_path}}'}\n"
    (tmp_path / "base.yaml").write_text(BASE + model)
    (tmp_path / "tuned.yaml").write_text(f"{SPEC}model: {{s3: 's3://bucket/tuned/'}}\n")
    path = "training_config.model_config.model_name_or_path"
    assert values(muster("resolve", "tuned.yaml", "--json"))[path] == ("/opt/ml/input/data/model", "spec")
    assert answer(muster("validate", "tuned.yaml", "--json"))["recipes"][0]["error"] is None
    (tmp_path / "wrong.yaml").write_text(f"{SPEC}model: {{hub: llama, rank: 1}}\n")
    assert muster("show", "wrong.yaml").exit_code == 0
    (found,) = json.loads(muster("validate", "wrong.yaml", "--json").stdout)["recipes"]
    assert "model.rank: set without run" in found["error"]["message"]


def test_a_users_recipe_is_laid_over_the_base(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("training_config: {learning_rate: 0.001}\n")
    (tmp_path / "only.yaml").write_text("replicas: 1\nimage: i\ninstance_type: ml.m5.large\nrecipe: base.yaml\n")
    for source in ("base.yaml", "only.yaml"):
        shown = values(muster("resolve", source, *FILLED, "--recipe", "mine.yaml", "--json"))
        assert shown["training_config.learning_rate"] == (0.001, "file"), source


def test_the_yaml_is_what_the_replicas_get_and_resolves_to_itself(muster: Muster, tmp_path: Path) -> None:
    first = answer(muster("resolve", "base.yaml", *FILLED, "--json"))
    text = muster("resolve", "base.yaml", *FILLED, "--yaml").stdout
    assert yaml.safe_load(text) == first["document"]
    written = muster("resolve", "base.yaml", *FILLED, "-o", "out.yaml")
    assert written.stdout == "Written to out.yaml.\n"
    assert (tmp_path / "out.yaml").read_text() == text
    assert answer(muster("resolve", "out.yaml", "--json"))["digest"] == first["digest"]


def test_a_value_of_an_option_is_yaml(muster: Muster) -> None:
    options = ("--set", "max_steps=1_000", "--set", "training_config.optimizer.name={a: [1, x]}", "--set", "lr=~")
    shown = values(muster("resolve", "base.yaml", *FILLED, *options, "--json"))
    assert shown["training_config.max_steps"][0] == 1000
    assert shown["training_config.optimizer.name.a"][0] == [1, "x"]
    assert shown["training_config.optimizer.lr"][0] is None
    for option in ("--set", "--input"):
        for text in ("max_steps", "=1", "max_steps=[1", "max_steps=a: b: c"):
            error = muster("resolve", "base.yaml", option, text).exception
            assert str(error).startswith(f"{option}: found {text!r}; "), (option, text)


def test_every_recipe_is_checked_and_every_problem_listed(muster: Muster, tmp_path: Path) -> None:
    # tests/unit/docs/test_recipes.py shows the problems of a spec.
    (tmp_path / "tab.yaml").write_text("a: 1\n\tb: 2\n")
    result = muster("validate", "jobs/run.yaml", "tab.yaml", "none.yaml")
    assert result.exit_code == 2
    valid, bad, problem, missing = result.stdout.splitlines()
    assert valid.startswith("jobs/run.yaml: valid, 7 values, digest ")
    assert (bad, "(base: tab.yaml): line 2, column 1: a tab" in problem) == ("tab.yaml: 1 problem", True)
    assert missing.startswith("none.yaml: The recipe none.yaml cannot be read: no such file or directory.")
    assert muster("validate", "jobs/run.yaml").exit_code == 0
    result = muster("validate", "tab.yaml", "jobs/run.yaml", "--json")
    assert result.exit_code == 2
    bad, good = json.loads(result.stdout)["recipes"]
    assert (bad["digest"], bad["error"]["problems"][0]["field"]) == (None, "recipe (base: tab.yaml)")
    assert (len(good["digest"]), good["error"]) == (64, None)
    # That S3 cannot be reached is no bad input.
    result = muster("validate", "s3://bucket/recipe.yaml")
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith("s3://bucket/recipe.yaml: ")


def test_a_mistake_is_one_line(muster: Muster) -> None:
    for arguments, words in (
        (("resolve",), "no recipe is named"),
        (("resolve", "base.yaml", "--hub-model", "m"), "two recipes are named"),
        (("resolve", "base.yaml", "--technique", "SFT"), "--technique needs --hub-model"),
        (("show", "base.yaml", "--hub-recipe", "x"), "--hub-recipe needs --hub-model"),
        (("list",), "name a checkout"),
        (("list", "--checkout", "none"), "none is not a folder"),
        (("list", "--checkout", "jobs"), "jobs has no recipes"),
        (("resolve", "none.yaml"), "The recipe none.yaml cannot be read"),
        (("resolve", "base.yaml", *FILLED, "-o", "no/out.yaml"), "cannot be written to no/out.yaml"),
    ):
        error = muster(*arguments).exception
        assert isinstance(error, MusterError), arguments
        assert words in str(error)
        assert "\n" not in str(error)


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    folder = tmp_path / "clone" / "recipes_collection" / "recipes" / "fine-tuning" / "llama"
    folder.mkdir(parents=True)
    for name in ("llmft_llama3_1_8b_seq4k_gpu_sft_lora", "llmft_llama3_1_8b_seq8k_gpu_dpo"):
        (folder / f"{name}.yaml").write_text(f"run: {{name: {name}, results_dir: '${{base_results_dir}}/x'}}\n")
    (tmp_path / "clone" / ".git").mkdir()
    (tmp_path / "clone" / ".git" / "x.yaml").write_text("a: 1\n")
    return "clone"


def test_the_recipes_of_a_checkout_are_listed_and_resolved(muster: Muster, checkout: str) -> None:
    found = answer(muster("list", "--checkout", checkout, "--json"))["recipes"]
    assert [one["name"].rpartition("_")[2] for one in found] == ["lora", "dpo"]
    lines = muster("list", "--checkout", checkout, "--model", "Llama-3.1", "--technique", "sft").stdout.splitlines()
    name = "fine-tuning/llama/llmft_llama3_1_8b_seq4k_gpu_sft_lora"
    assert [line.split() for line in lines[1:]] == [["SFT", "LORA", "4K", name]]
    found = values(muster("resolve", name, "--checkout", checkout, "--json"))
    assert found["run.name"][1] == "base"
    assert found["run.results_dir"][0] == "/opt/ml/checkpoints/x"
    wrong = muster("resolve", name.replace("lora", "lra"), "--checkout", checkout)
    assert f"did you mean {name}?" in str(wrong.exception)


@pytest.mark.usefixtures("muster", "checkout")
def test_the_shell_completes_recipes_paths_and_placeholders() -> None:
    for line, completed in {
        "res": ["resolve"],
        "resolve base.yaml --set training_config.m": ["training_config.max_steps="],
        "validate jobs/run.yaml --set run.": ["run.name=", "run.model_type=", "run.results_dir="],
        "diff base.yaml x.yaml --input l": ["learning_rate="],
        "resolve --checkout clone fine-tuning/llama/llmft_llama3_1_8b_seq8": ["dpo"],
        # AWS is not asked, and a file that cannot be read has no names.
        "resolve s3://bucket/a.yaml --set ": [],
        "resolve none.yaml --set ": [],
        "resolve --set ": [],
        "resolve ": [],
    }.items():
        words = f"muster recipe {line}"
        asked = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        found = CliRunner().invoke(app, [], env=asked, prog_name="muster").stdout.split()
        assert len(found) == len(completed), line
        assert all(one.endswith(end) for one, end in zip(found, completed, strict=True)), line


@pytest.mark.usefixtures("checkout")
def test_an_answer_in_json_has_the_fields_that_are_promised(muster: Muster) -> None:
    for arguments in (
        ("list", "--checkout", "clone"),
        ("show", "base.yaml", "--override-spec", "base.json"),
        ("resolve", "jobs/run.yaml"),
        ("diff", "base.yaml", "jobs/run.yaml", *FILLED),
        ("validate", "jobs/run.yaml", "base.yaml"),
    ):
        line = muster(*arguments, "--json").stdout
        model = ANSWERS[f"recipe {arguments[0]}"]
        assert model.model_validate_json(line).model_dump(mode="json") == json.loads(line), arguments
        assert line.count("\n") == 1
