"""The values of a resolved recipe with their sources, and how two recipes differ."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from muster.client.aws.reported import Execution
from muster.client.cli.status_table import status_lines
from muster.client.runs.notebook import run_html
from muster.client.runs.run_status import Observation, RunStatus, run_status
from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.client.catalog import checkout_recipes
from muster.options.recipes.client.client_reader import ClientReader
from muster.options.recipes.client.recipe_values import recipe_differences, recipe_sources, recipe_values
from muster.options.recipes.contract.checkout_recipe import checkout_recipe
from muster.options.recipes.contract.recipe_text import TEXT_MAX
from muster.options.recipes.contract.resolved_recipe import RecipeSources, ResolvedRecipe, SourceText
from muster.options.recipes.contract.text_places import PlaceError

DOCUMENT: dict[str, Any] = {
    "run": {"name": "first", "extra": {}},
    "training_config": {"lr": 0.1, "layers": [1, {"a": 2}], "odd.key": True},
}
ORIGINS = {
    ("run", "name"): Origin.INPUT,
    ("run", "extra"): Origin.BASE,
    ("training_config", "lr"): Origin.OVERRIDE,
    ("training_config", "layers"): Origin.BASE,
    ("training_config", "odd.key"): Origin.DEFAULT,
}
RESOLVED = ResolvedRecipe(DOCUMENT, ORIGINS, {})


def test_every_value_has_its_source_and_every_source_its_number_of_values() -> None:
    assert [(value.path, value.value, value.origin) for value in recipe_values(RESOLVED)] == [
        *(("run.name", "first", "inputs"), ("run.extra", {}, "base"), ("training_config.lr", 0.1, "overrides")),
        *(("training_config.layers", [1, {"a": 2}], "base"), ('training_config."odd.key"', True, "default")),
    ]
    base, override_spec = (SourceText(place=place, text="") for place in ("base.yaml", "base.json"))
    found = recipe_sources(RESOLVED, RecipeSources(name="first", base=base, override_spec=override_spec))
    assert [(one.origin, one.place, one.values) for one in found] == [
        *(("base", "base.yaml", 2), ("default", "base.json", 1)),
        *(("inputs", "inputs", 1), ("overrides", "overrides", 1)),
    ]


def test_a_difference_has_both_values() -> None:
    changes: list[tuple[Any, Any, str]] = [
        ({"x": 1}, {}, "removed"),
        ({}, {"x": None}, "added"),
        ({"x": [1, 2]}, {"x": [2, 1]}, "changed"),
        # What Python holds for equal is not the same in YAML.
        ({"x": 1}, {"x": True}, "changed"),
        ({"x": 1}, {"x": 1.0}, "changed"),
        ({"x": [{"y": 0}]}, {"x": [{"y": False}]}, "changed"),
        ({"x": None}, {"x": "null"}, "changed"),
    ]
    for a, b, change in changes:
        (found,) = recipe_differences(a, b)
        both = repr(a.get("x")), repr(b.get("x"))
        assert (found.path, found.change, repr(found.a), repr(found.b)) == ("x", change, *both)
    assert recipe_differences(DOCUMENT, dict(reversed(DOCUMENT.items()))) == []
    a = {"z": 1, "section": {"gone": 1, "kept": 2}, "empty": {}}
    b = {"new": 0, "section": {"kept": 3, "more": 4}, "empty": {"full": 1}, "z": 2}
    changed = [(one.change[0], one.path) for one in recipe_differences(a, b)]
    assert changed == [
        *(("c", "z"), ("r", "section.gone"), ("c", "section.kept"), ("r", "empty")),
        *(("a", "new"), ("a", "section.more"), ("a", "empty.full")),
    ]


DIGEST = "0123456789ab" + "c" * 52
REFERENCE: dict[str, Any] = {"name": "llama-lora", "family": "llmft", "digest": DIGEST}


def status(recipe: Any) -> RunStatus:
    start = datetime(2026, 11, 22, tzinfo=UTC)
    answer: Any = {"name": "one", "status": "RUNNING", "startDate": start, "input": json.dumps({"recipe": recipe})}
    return run_status(Observation("one", Execution.from_description(answer), {}, start))


def test_the_status_and_a_notebook_name_the_recipe() -> None:
    shown = status(REFERENCE)
    words = f"Recipe: llama-lora (family llmft), digest {DIGEST}."
    assert words in [line.text for line in status_lines(shown, 200, None)]
    assert f"<p>{words}</p>" in run_html("one", lambda: shown)
    # One that the plan resolves is not known from the input.
    for recipe in (None, "mine.yaml", {"base": "s3://bucket/a.yaml"}, {"digest": 1}):
        assert status(recipe).recipe is None, recipe


def no_session() -> NoReturn:
    pytest.fail("a file needs no session")


def refusal(place: Path) -> tuple[str, str]:
    with pytest.raises(PlaceError) as caught:
        ClientReader(no_session).read_text(str(place))
    return caught.value.statement, caught.value.remedy


def test_a_file_that_is_missing_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "llama_sft.yaml").write_text("a: 1", encoding="utf-8")
    statement, remedy = refusal(tmp_path / "lama_sft.yaml")
    assert statement == f"{tmp_path}/lama_sft.yaml does not exist"
    assert remedy == f"did you mean {tmp_path}/llama_sft.yaml?"
    assert refusal(tmp_path / "zzz")[1] == "correct the path"
    assert refusal(tmp_path / "none" / "r.yaml")[1] == f"{tmp_path}/none does not exist either; correct the path"


def test_what_is_no_text_file_of_the_size_of_a_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * (TEXT_MAX + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    # Opening it would wait for a writer.
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "large")[0].endswith("has more than 1,048,576 bytes")
    assert refusal(tmp_path / "binary")[0].endswith("is not UTF-8 text")
    assert refusal(tmp_path / "pipe")[0].endswith("is not a file")
    assert refusal(tmp_path)[0].endswith("is a folder")
    assert refusal(Path("a\0b"))[0] == r"'a\x00b' is no path"


def test_a_checkout_has_the_yaml_files_below_it_and_follows_no_link(tmp_path: Path) -> None:
    inside = tmp_path / "checkout" / "recipes" / "fine-tuning"
    inside.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.yaml").write_text("a: secret", encoding="utf-8")
    (inside / "a.yaml").write_text("a: 1", encoding="utf-8")
    (inside / "notes.txt").write_text("", encoding="utf-8")
    (inside / "link.yaml").symlink_to(outside / "secret.yaml")
    (inside / "folder").symlink_to(outside)
    reader, folder = ClientReader(no_session), str(tmp_path / "checkout")
    files = reader.files(folder)
    assert files == ["recipes/fine-tuning/a.yaml"]
    for base in ("fine-tuning/link", "fine-tuning/folder/secret", "../outside/secret"):
        with pytest.raises(PlaceError):
            checkout_recipe(reader, folder, files, base)
    with pytest.raises(PlaceError, match="is not a folder"):
        reader.files(str(tmp_path / "none"))


def test_the_catalog_says_what_paths_and_texts_say(tmp_path: Path) -> None:
    root, recipe = "hyperpod_recipes/recipes_src/", "fine-tuning/llama/verl-dpo-llama-8b-5k-lora"
    files = {
        f"{root}{recipe}.yaml": "display_name: \"Llama 8B DPO\"\ninstance_types: ['ml.g5.xlarge', ml.g6.xlarge]\n",
        f"{root}fine-tuning/qwen-0_7_0/llmft_seq8k_gpu_sft_fft.yaml": "instance_types:\n- ml.p5.48xlarge\nx: 1\n",
        f"{root}evaluation/open-source/judge.yaml": "run: {}\n",
        f"{root}training/llama/llama_70b_pretrain.yaml": "",
        f"{root}fine-tuning/hydra_config/verl/p.yaml": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    evaluation, lora, full, training = checkout_recipes(no_session, str(tmp_path)).recipes
    assert (evaluation.name, evaluation.technique) == ("evaluation/open-source/judge", "Evaluation")
    assert (lora.title, lora.family, lora.technique, lora.training_type) == ("Llama 8B DPO", "llama", "DPO", "LORA")
    assert (lora.sequence_length, lora.instance_types) == ("5K", ("ml.g5.xlarge", "ml.g6.xlarge"))
    assert (full.family, full.technique, full.training_type) == ("qwen", "SFT", "FULL")
    assert (full.sequence_length, full.instance_types) == ("8K", ("ml.p5.48xlarge",))
    assert (training.technique, training.family) == ("CPT", "llama")
