"""Documentation that follows from code must follow it."""

from __future__ import annotations

import dataclasses
import re

from docs.generate import BEGIN, DOCS, END, budget_table, pages, spec_reference
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.run_events import OUT
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec import Spec
from muster.replica.context import Context


def test_the_generated_pages_are_up_to_date() -> None:
    assert [str(path) for path, text in pages().items() if path.read_text(encoding="utf-8") != text] == []


def test_every_field_of_the_spec_is_explained() -> None:
    reference = spec_reference()
    for name, field in Spec.model_fields.items():
        assert f"| `{name}` |" in reference
        assert field.description


def test_every_failure_class_is_explained_beside_its_budget() -> None:
    page = (DOCS / "failures.md").read_text(encoding="utf-8")
    explained = page.replace(page[page.index(BEGIN) : page.index(END)], "")
    for failure_class in FailureClass:
        assert (f"| `{failure_class}` |" in budget_table()) == (failure_class in DEFAULT_BUDGETS)
        assert f"| `{failure_class}` |" in explained


def test_the_page_of_the_events_names_every_field_of_every_event() -> None:
    page = (DOCS / "events.md").read_text(encoding="utf-8")
    for event in OUT:
        section = page.partition(f"### {event.detail_type}\n")[2].partition("\n### ")[0]
        assert [name for name in event.model_fields if f"| `{name}` |" not in section] == []


def test_every_field_of_the_context_is_explained() -> None:
    page = (DOCS / "training.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `[\w.]+` \| (.*) \|$", page, re.MULTILINE))
    for field in dataclasses.fields(Context):
        assert len(rows.get(field.name, "").split()) >= 5, field.name
