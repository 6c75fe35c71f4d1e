"""Muster and AWS's own SDK on the same recipes: equal field by field, except for the differences that are listed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
from muster.contract.recipe.recipe_text import load_recipe_text, recipe_yaml
from muster.contract.recipe.resolution import resolve
from tests.oracle import generated, muster_side
from tests.oracle.cases import Case, cases
from tests.oracle.differences import DELIVERED, REQUESTS, Difference, by_name, found_differences
from tests.oracle.exact import decoded, encoded, same
from tests.oracle.examples import EXAMPLES, Example, Refused, at, shown
from tests.oracle.tables import names, tables

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "sagemaker" / "bin" / "python"
CASES = cases()
JOBS = [case for case in CASES if case.job is not None]
_TRAIN = "sagemaker.train."
TRAINERS = [
    f"{_TRAIN}base_trainer.BaseTrainer",
    *(f"{_TRAIN}{name.lower()}_trainer.{name}Trainer" for name in ("SFT", "DPO", "RLVR", "RLAIF", "CPT")),
]
MODEL_TRAINER = f"{_TRAIN}model_trainer.ModelTrainer"
TREES = [generated.recipe(seed) for seed in range(150)]
SCALARS = list(generated.scalars(seed=0, count=600))


def named(case: Case | Example) -> str:
    return case.name


def kind_of(case: Case) -> str:
    """What of the SDK runs a case's job: the method for recipes, or a trainer with the hub's documents."""
    return "from_recipe" if case.base is None else "trained"


def resolved_text(case: Case) -> str:
    """The YAML of a resolved recipe; empty where Muster refuses it, which the test of that recipe shows."""
    with suppress(SpecError):
        return recipe_yaml(resolve(muster_side.sources(case)).document)
    return ""


@cache
def asked() -> dict[str, Any]:
    """What the SDK answers: one process for all tests, since it imports for two seconds."""
    jobs = [*JOBS, *(one.case for one in EXAMPLES if one.kind != "resolved")]
    questions = {
        "resolved": [*CASES, *(one.case for one in EXAMPLES if one.kind == "resolved")],
        "from_recipe": [case for case in jobs if kind_of(case) == "from_recipe"],
        "trained": [case for case in jobs if kind_of(case) == "trained"],
    }
    document = {kind: [encoded(case.question()) for case in found] for kind, found in questions.items()}
    document["read"] = [*map(resolved_text, CASES), *SCALARS]
    document["interpolated"] = TREES
    document["signatures"] = [*TRAINERS, MODEL_TRAINER]
    command = [str(PYTHON), "-m", "tests.oracle.sagemaker_side"]
    # The SDK leaves its temporary files behind.
    with TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            command, input=json.dumps(document), capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def theirs(kind: str, case: Case) -> Any:
    answer = asked()[kind][case.name]
    assert "value" in answer, answer
    return decoded(answer["value"])


def unexplained(
    case: Case, found: dict[str, tuple[object, object]], listed: Sequence[Difference]
) -> Iterator[tuple[str, object, object]]:
    for field, (left, right) in found.items():
        if not any(one.explains(case.name, field, left, right) for one in listed):
            yield field, left, right


def test_there_are_recipes_of_every_public_family() -> None:
    families = {case.name.split("/")[0] for case in CASES}
    assert families == {"evaluation", "forms", "general", "llmft", "nova", "verl"}
    assert len(CASES) >= 30


@pytest.mark.parametrize("case", [case for case in CASES if case.shown], ids=named)
def test_a_recipe_resolves_as_the_sdk_resolves_it(case: Case) -> None:
    assert found_differences(theirs("resolved", case), muster_side.resolved(case)) == {}


@pytest.mark.parametrize("place", range(len(CASES)), ids=[case.name for case in CASES])
def test_omegaconf_reads_a_resolved_recipe_as_muster_and_pyyaml_do(place: int) -> None:
    read = decoded(asked()["read"][place]["value"])
    assert found_differences(read, muster_side.resolved(CASES[place])) == {}
    document = resolve(muster_side.sources(CASES[place])).document
    assert load_recipe_text(recipe_yaml(document)) == document


def delivered_differences(case: Case) -> dict[str, tuple[object, object]]:
    return found_differences(theirs(kind_of(case), case)["recipe"], muster_side.delivered(case))


@pytest.mark.parametrize("case", JOBS, ids=named)
def test_a_container_reads_the_recipe_that_the_sdk_would_give_it(case: Case) -> None:
    assert list(unexplained(case, delivered_differences(case), DELIVERED)) == []


def request_differences(case: Case) -> dict[str, tuple[object, object]]:
    return found_differences(by_name(theirs(kind_of(case), case)["request"]), by_name(muster_side.request(case)))


@pytest.mark.parametrize("case", JOBS, ids=named)
def test_a_job_gets_the_request_that_the_sdk_sends(case: Case) -> None:
    assert list(unexplained(case, request_differences(case), REQUESTS)) == []


def test_every_listed_difference_occurs() -> None:
    for listed, look in ((DELIVERED, delivered_differences), (REQUESTS, request_differences)):
        found = [(case.name, field, *pair) for case in JOBS for field, pair in look(case).items()]
        unused = [one for one in listed if not any(one.explains(*difference) for difference in found)]
        assert unused == []


def their_result(example: Example) -> tuple[object, str]:
    """What the SDK gives at the example's path, and its error's message."""
    kind = "resolved" if example.kind == "resolved" else kind_of(example.case)
    answer = asked()[kind][example.case.name]
    if "value" not in answer:
        return None, f"{answer['error']}: {answer['message']}"
    found = decoded(answer["value"])
    part = {"resolved": found, "delivered": found.get("recipe"), "request": found.get("request")}[example.kind]
    return at(part, example.path), ""


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
def test_the_sdk_does_what_the_table_says(example: Example) -> None:
    found, message = their_result(example)
    if isinstance(example.theirs, Refused):
        assert all(words in message for words in example.theirs.words), (found, message)
    else:
        assert not message
        assert same(found, example.theirs), found


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
def test_muster_does_what_the_table_says(example: Example) -> None:
    look = {"resolved": muster_side.resolved, "delivered": muster_side.delivered, "request": muster_side.request}
    if isinstance(example.ours, Refused):
        with pytest.raises(SpecError) as refused:
            look[example.kind](example.case)
        assert {problem.field for problem in refused.value.problems} == set(example.ours.words)
    else:
        assert same(at(look[example.kind](example.case), example.path), example.ours)


# Why Muster refuses what OmegaConf takes: rows of the table.
REFUSED_TREE = re.compile(r"(a mapping|a list) as a part of a text|in \$\{(add|multiply|divide_\w+):…\}; it takes ")
REFUSED_SCALAR = re.compile(
    r"versions of YAML read this number differently|in base 60|found unexpected ':'|not a string"
)


def held_against(text: str, answer: dict[str, Any], refused: re.Pattern[str]) -> str:
    """`equal`, `refused by both`, or `refused by Muster` for a reason of the table."""
    ours, problems = None, ()
    try:
        ours = resolve(RecipeSources(name="generated", recipe=SourceText(place="recipe.yaml", text=text))).document
    except SpecError as error:
        problems = error.problems
    if "error" in answer:
        assert ours is None, f"{answer}\n{text}"
        return "refused by both"
    if ours is None:
        assert all(refused.search(str(problem)) for problem in problems), f"{problems}\n{text}"
        return "refused by Muster"
    assert found_differences(decoded(answer["value"]), ours) == {}, text
    return "equal"


def test_generated_references_mean_what_they_mean_in_omegaconf() -> None:
    found = Counter(map(held_against, TREES, asked()["interpolated"], [REFUSED_TREE] * len(TREES)))
    assert found["equal"] > len(TREES) // 2, found
    assert found["refused by Muster"] < len(TREES) // 10, found


def test_generated_scalars_are_read_as_omegaconf_reads_them() -> None:
    answers = asked()["read"][len(CASES) :]
    found = Counter(map(held_against, SCALARS, answers, [REFUSED_SCALAR] * len(SCALARS)))
    assert found["equal"] > len(SCALARS) * 0.85, found
    assert found["refused by Muster"] < len(SCALARS) // 10, found


def listed_names(heading: str) -> set[str]:
    """The names in the first cells of a table, each of whose rows says something."""
    rows = tables()[heading]
    assert all(row[1] for row in rows)
    found = [name for row in rows for name in names(row[0])]
    assert len(found) == len(set(found))
    return set(found)


def arguments(classes: Sequence[str], method: str) -> set[str]:
    return {one for name in classes for one in asked()["signatures"][name].get(method, ())}


def methods(classes: Sequence[str]) -> set[str]:
    return {one for name in classes for one in asked()["signatures"][name]} - {"__init__"}


def test_the_table_has_every_argument_and_method_of_the_trainers() -> None:
    assert listed_names("Arguments of the trainers") == arguments(TRAINERS, "__init__")
    assert listed_names("Arguments of train") == arguments([*TRAINERS, MODEL_TRAINER], "train")
    assert listed_names("Methods of the trainers") == methods(TRAINERS)


def test_the_table_has_every_argument_and_method_of_model_trainer() -> None:
    assert listed_names("Arguments of ModelTrainer.from_recipe") == arguments([MODEL_TRAINER], "from_recipe")
    assert listed_names("Methods of ModelTrainer") == methods([MODEL_TRAINER])


def rows_of_differences() -> dict[str, list[str]]:
    headings = ("Where a value goes", "Placeholders", "Checks", "References", "YAML", "What a job reads")
    found = tables()
    rows = {row[0]: row for heading in (*headings, "What a job's request has") for row in found[heading]}
    assert len(rows) == sum(len(found[heading]) for heading in (*headings, "What a job's request has"))
    return rows


@pytest.mark.parametrize("example", EXAMPLES, ids=named)
def test_the_document_shows_what_both_sides_do(example: Example) -> None:
    row = rows_of_differences()[example.name]
    assert shown(example.theirs) in row[2]
    assert shown(example.ours) in row[3]


def test_every_difference_has_a_row_and_every_row_a_difference() -> None:
    used = {one.name for one in (*DELIVERED, *REQUESTS)} | {one.name for one in EXAMPLES}
    assert set(rows_of_differences()) == used
