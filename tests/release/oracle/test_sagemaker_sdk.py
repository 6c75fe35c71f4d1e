"""Muster and AWS's own SDK on the same recipes: equal field by field, except for the differences that are listed."""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from muster.contract.errors import RecipeError, SpecError
from muster.options.recipes.contract.recipe_text import load_recipe_text
from muster.options.recipes.contract.resolution import resolve
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText
from muster.options.recipes.contract.text_places import PlaceError
from tests.release.oracle import generated, muster_side
from tests.release.oracle.cases import EXAMPLES, Case, Example, Refused, at, cases, shown
from tests.release.oracle.differences import DELIVERED, REQUESTS, Difference, by_name, found_differences
from tests.release.oracle.exact import decoded, encoded, same
from tests.support.composed_recipes import RECIPE, checkout
from tests.support.recipe_readers import recipe_of_checkout

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / "build" / "sagemaker" / "bin" / "python"
DOCUMENT = ROOT / "docs" / "recipes-sdk.md"
CASES = cases()
JOBS = [case for case in CASES if case.job is not None]
_TRAIN = "sagemaker.train."
TRAINERS = [
    f"{_TRAIN}base_trainer.BaseTrainer",
    *(f"{_TRAIN}{name.lower()}_trainer.{name}Trainer" for name in ("SFT", "DPO", "RLVR", "RLAIF", "CPT")),
]
MODEL_TRAINER = f"{_TRAIN}model_trainer.ModelTrainer"
CHECKOUTS = [checkout(seed) for seed in range(80)]
TREES = [generated.recipe(seed) for seed in range(150)]
SCALARS = list(generated.scalars(seed=0, count=600))


def kind_of(case: Case) -> str:
    """What of the SDK runs a case's job: the method for recipes, or a trainer with the hub's documents."""
    return "from_recipe" if case.base is None else "trained"


def resolved_text(case: Case) -> str:
    """The YAML of a resolved recipe; empty where Muster refuses it, which the test of that recipe shows."""
    with suppress(SpecError):
        return resolve(muster_side.sources(case)).to_yaml()
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
    document["composed"] = CHECKOUTS
    document["signatures"] = [*TRAINERS, MODEL_TRAINER]
    command = [str(PYTHON), "-m", "tests.release.oracle.sagemaker_side"]
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


Named = TypeVar("Named", Case, Example)


def wrong(cases: Iterable[Named], look: Callable[[Named], object]) -> dict[str, object]:
    """What is wrong with each case: what `look` finds, or why one of the sides refuses it."""
    found: dict[str, object] = {}
    for case in cases:
        try:
            found[case.name] = look(case)
        except (AssertionError, SpecError) as error:
            found[case.name] = f"{type(error).__name__}: {error}"
    return {name: one for name, one in found.items() if one}


def unexplained(
    case: Case, found: dict[str, tuple[object, object]], listed: Sequence[Difference]
) -> dict[str, tuple[object, object]]:
    """The differences that no listed one explains."""
    return {
        field: pair for field, pair in found.items() if not any(one.explains(case.name, field, *pair) for one in listed)
    }


def test_a_recipe_resolves_as_the_sdk_resolves_it() -> None:
    def differences(case: Case) -> object:
        return found_differences(theirs("resolved", case), muster_side.resolved(case))

    assert wrong([case for case in CASES if case.shown], differences) == {}


def test_omegaconf_reads_a_resolved_recipe_as_muster_and_pyyaml_do() -> None:
    read = {case.name: one for case, one in zip(CASES, asked()["read"], strict=False)}

    def differences(case: Case) -> object:
        found = resolve(muster_side.sources(case))
        assert load_recipe_text(found.to_yaml()) == found.document
        return found_differences(decoded(read[case.name]["value"]), muster_side.resolved(case))

    assert wrong(CASES, differences) == {}


def delivered_differences(case: Case) -> dict[str, tuple[object, object]]:
    return found_differences(theirs(kind_of(case), case)["recipe"], muster_side.delivered(case))


def test_a_container_reads_the_recipe_that_the_sdk_would_give_it() -> None:
    assert wrong(JOBS, lambda case: unexplained(case, delivered_differences(case), DELIVERED)) == {}


def request_differences(case: Case) -> dict[str, tuple[object, object]]:
    return found_differences(by_name(theirs(kind_of(case), case)["request"]), by_name(muster_side.request(case)))


def test_a_job_gets_the_request_that_the_sdk_sends() -> None:
    assert wrong(JOBS, lambda case: unexplained(case, request_differences(case), REQUESTS)) == {}


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


def test_the_sdk_does_what_the_table_says() -> None:
    def other(example: Example) -> object:
        found, message = their_result(example)
        if isinstance(example.theirs, Refused):
            return None if all(words in message for words in example.theirs.words) else (found, message)
        return None if not message and same(found, example.theirs) else (found, message)

    assert wrong(EXAMPLES, other) == {}


def test_muster_does_what_the_table_says() -> None:
    look = {"resolved": muster_side.resolved, "delivered": muster_side.delivered, "request": muster_side.request}

    def other(example: Example) -> object:
        if not isinstance(example.ours, Refused):
            found = at(look[example.kind](example.case), example.path)
            return None if same(found, example.ours) else f"found {found!r}"
        try:
            look[example.kind](example.case)
        except SpecError as refused:
            fields = {problem.field for problem in refused.problems}
            return fields ^ set(example.ours.words)
        return "not refused"

    assert wrong(EXAMPLES, other) == {}


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


def test_a_recipe_is_composed_as_hydra_composes_it() -> None:
    found: Counter[str] = Counter()
    for seed, (files, theirs) in enumerate(zip(CHECKOUTS, asked()["composed"], strict=True)):
        ours = None
        with suppress(PlaceError, RecipeError):
            base = recipe_of_checkout(files, RECIPE)
            ours = resolve(RecipeSources(name="composed", base=base)).document
        assert ("error" in theirs) == (ours is None), (seed, theirs)
        assert ours is None or found_differences(decoded(theirs["value"]), ours) == {}, seed
        found["equal" if ours else "refused by both"] += 1
    assert found["equal"] > len(CHECKOUTS) * 0.8, found


def test_generated_scalars_are_read_as_omegaconf_reads_them() -> None:
    answers = asked()["read"][len(CASES) :]
    found = Counter(map(held_against, SCALARS, answers, [REFUSED_SCALAR] * len(SCALARS)))
    assert found["equal"] > len(SCALARS) * 0.85, found
    assert found["refused by Muster"] < len(SCALARS) // 10, found


def tables() -> dict[str, list[list[str]]]:
    """The rows of the tables of docs/recipes-sdk.md below each heading, without the tables' own heads."""
    found: dict[str, list[list[str]]] = {}
    heading, head = "", True
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"^#+ (.*)$", line):
            heading = match[1]
        if not line.startswith("|"):
            head = True
        elif line.startswith("|---"):
            head = False
        elif not head:
            found.setdefault(heading, []).append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


def listed_names(heading: str) -> set[str]:
    """The names in the first cells of a table, in backticks; each of its rows says something."""
    rows = tables()[heading]
    assert all(row[1] for row in rows)
    found = [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    assert len(found) == len(set(found))
    return set(found)


def arguments(classes: Sequence[str], method: str) -> set[str]:
    return {one for name in classes for one in asked()["signatures"][name].get(method, ())}


def methods(classes: Sequence[str]) -> set[str]:
    return {one for name in classes for one in asked()["signatures"][name]} - {"__init__"}


def test_the_tables_have_every_argument_and_method_of_the_sdk() -> None:
    assert listed_names("Arguments of the trainers") == arguments(TRAINERS, "__init__")
    assert listed_names("Arguments of train") == arguments([*TRAINERS, MODEL_TRAINER], "train")
    assert listed_names("Methods of the trainers") == methods(TRAINERS)
    assert listed_names("Arguments of ModelTrainer.from_recipe") == arguments([MODEL_TRAINER], "from_recipe")
    assert listed_names("Methods of ModelTrainer") == methods([MODEL_TRAINER])


def rows_of_differences() -> dict[str, list[str]]:
    headings = ("Where a value goes", "Placeholders", "Checks", "References", "YAML", "What a job reads")
    found = tables()
    rows = {row[0]: row for heading in (*headings, "What a job's request has") for row in found[heading]}
    assert len(rows) == sum(len(found[heading]) for heading in (*headings, "What a job's request has"))
    return rows


def test_the_document_shows_what_both_sides_do() -> None:
    rows = rows_of_differences()

    def missing(example: Example) -> object:
        row = rows[example.name]
        return [text for text, cell in ((example.theirs, row[2]), (example.ours, row[3])) if shown(text) not in cell]

    assert wrong(EXAMPLES, missing) == {}


def test_every_difference_has_a_row_and_every_row_a_difference() -> None:
    used = {one.name for one in (*DELIVERED, *REQUESTS)} | {one.name for one in EXAMPLES}
    assert set(rows_of_differences()) == used
