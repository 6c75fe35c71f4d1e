"""Pages follow the code; tables promise a test for each row, or a row for each name."""

import dataclasses
import re
from functools import cache

from docs.generate import BEGIN, DOCS, END, pages
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.run_events import OUT
from muster.contract.spec.spec import Spec
from muster.replica.context import Context
from tests.mutants.fault_table import NO_CODE, fault_rows, named_tests
from tests.mutants.table import mutants
from tests.support.source_patch import ROOT
from tests.support.torchx_options import OPTIONS


@cache
def functions_of(file: str) -> frozenset[str]:
    path = ROOT / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))


def is_there(test: str) -> bool:
    file, function = test.split("::")
    return function in functions_of(file)


def table(page: str, begin: str) -> list[list[str]]:
    """The cells of each row of the first table behind `begin`, without its heading."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(begin)[2]
    found = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert found is not None, (page, begin)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()[2:]]


def test_every_fault_names_tests_that_exist_and_a_mutant_or_says_that_it_needs_no_code() -> None:
    rows, killing = fault_rows(), {mutant.test for mutant in mutants()}
    assert [row for row in rows if not named_tests(row)] == []
    assert [test for row in rows for test in named_tests(row) if not is_there(test)] == []
    assert [row for row in rows if any(test in killing for test in named_tests(row)) is (NO_CODE in row)] == []


def test_every_name_of_the_former_executor_has_a_row_with_a_test_that_exists() -> None:
    rows = table("executor.md", "## Every name of the former executor")
    assert [row for row in rows if not (row[0] and (row[1] or row[2]))] == []
    assert [row[0] for row in rows if list(map(is_there, named_tests(row[3]))) != [True]] == []


def test_every_option_of_torchx_is_mapped_to_a_field_of_the_spec() -> None:
    rows = [[cell.strip("`") for cell in row] for row in table("torchx.md", "The next table shows")]
    assert [option for option, _, _ in rows] == OPTIONS
    # It steered TorchX's own output while it built an image.
    assert [option for option, field, _ in rows if field not in Spec.model_fields] == ["quiet"]


def test_the_generated_pages_are_up_to_date() -> None:
    assert [str(path) for path, text in pages().items() if path.read_text(encoding="utf-8") != text] == []


def test_every_failure_class_and_every_field_of_an_event_and_of_the_context_is_explained() -> None:
    failures, events, training = (
        (DOCS / f"{page}.md").read_text(encoding="utf-8") for page in ("failures", "events", "training")
    )
    explained = failures.replace(failures[failures.index(BEGIN) : failures.index(END)], "")
    assert [one for one in FailureClass if f"| `{one}` |" not in explained] == []
    for event in OUT:
        section = events.partition(f"### {event.detail_type}\n")[2].partition("\n### ")[0]
        assert [name for name in event.model_fields if f"| `{name}` |" not in section] == [], event.detail_type
    rows = dict(re.findall(r"^\| `(\w+)` \| `[\w.]+` \| (.*) \|$", training, re.MULTILINE))
    assert [field.name for field in dataclasses.fields(Context) if len(rows.get(field.name, "").split()) < 5] == []


def test_the_fields_of_an_event_have_their_types() -> None:
    rows = {row[0].strip("`"): row[1] for row in table("events.md", "### Run Succeeded")}
    assert (rows["samples"], rows["reruns"]) == ("number, may be missing", "whole number")
    rows = {row[0].strip("`"): row[1] for row in table("events.md", "### Replica Rerun")}
    assert (rows["failure_class"], rows["at"]) == ("a class of [failures.md](failures.md)", "time")


def test_the_glossary_names_files_in_order() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- \*\*([^*]+)\*\*: .+\. `([^`]+)`$", text, re.MULTILINE)
    words = [word for word, _ in rows]
    assert len(rows) == text.count("\n- ") > 50
    assert words == sorted(words, key=str.casefold)
    assert [(word, path) for word, path in rows if not (ROOT / path).is_file()] == []


def test_every_module_stands_in_the_index() -> None:
    index = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Index of modules")[2]
    assert index.count("\n- `") > 300
    assert "\n- `rerun_decision.py`: " in index.partition("### `muster/control/`")[2]
    # Each has a docstring, whose first line it shows.
    assert re.findall(r"^- `\S+`: *$", index, re.MULTILINE) == []
