"""The counts of the code's structure, each on sources of a few lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import __main__ as runner
from bench.structure import __main__ as command
from bench.structure import definitions, files, metrics, repeats, sources, vocabulary
from bench.structure.sources import Finding

_STORE = "import muster.control.clock\nfrom muster.contract import names\n"


def _paths(findings: list[Finding]) -> list[str]:
    return [found.path for found in findings]


def test_sources_are_the_text_files_that_git_tracks_or_would_track(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    for name in ("old.py", "new.py", "gone.py", "built.py", "Makefile", "picture.png"):
        (tmp_path / name).write_text(f"# {name}\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("built.py\n", encoding="utf-8")
    subprocess.run(["git", "add", "old.py", "gone.py"], cwd=tmp_path, check=True)
    (tmp_path / "gone.py").unlink()
    read = sources.read_sources(tmp_path)
    assert read.keys() == {".gitignore", "Makefile", "new.py", "old.py"}
    assert read["new.py"] == "# new.py\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import muster.a\n", {"muster.a"}),
        ("from muster import a, missing\n", {"muster.a", "muster"}),
        ("from muster.a import name\n", {"muster.a"}),
        ("def f():\n    from muster.a import name\n", {"muster.a"}),
        ("import boto3\nNAME = 'muster.a'\n", set()),
    ],
)
def test_an_import_of_a_module_from_its_package_is_an_import_of_the_module(text: str, found: set[str]) -> None:
    assert sources.imported_modules(text, frozenset({"muster", "muster.a"})) == found


def test_a_small_module_has_one_importer_in_the_product_and_few_lines_of_code() -> None:
    tree = {
        "muster/__init__.py": "",
        "muster/one.py": '"""Doc."""\n\n# why\nA = 1\n',
        "muster/two.py": "A = 1\n",
        "muster/long.py": "A = 1\n" * 30,
        "muster/just_short.py": "# a comment\n" * 9 + "A = 1\n" * 29,
        "muster/user.py": "from muster import long, one, two, just_short\n",
        "lambdas/other.py": "import muster.two\n",
        "tests/unit/test_one.py": "import muster.one\n",
    }
    findings = files.small_modules(tree)
    assert _paths(findings) == ["muster/one.py", "muster/just_short.py"]
    assert [found.size for found in findings] == [1, 29]
    assert "muster/user.py" in findings[0].text


def test_a_line_of_code_is_no_blank_line_comment_or_docstring() -> None:
    text = '"""Doc\nof two lines."""\n\nimport os  # why\n# a comment\nTEXT = """a\n\nb"""\n'
    assert files.code_lines(text) == 4


def test_a_folder_is_as_flat_as_the_files_in_it_itself() -> None:
    tree = dict.fromkeys(
        ["muster/a/__init__.py", "muster/a/b.py", "muster/a/c/d.py", "bench/e.py", "muster/a/f.js"], ""
    )
    assert {found.path: found.size for found in files.flat_folders(tree)} == {"muster/a": 2, "muster/a/c": 1}


def test_base_names_repeat_within_the_product_alone() -> None:
    names = ["muster/a/jobs.py", "infra/jobs.py", "lambdas/plan.py", "tests/plan.py"]
    tree = dict.fromkeys([*names, "muster/__init__.py", "muster/a/__init__.py"], "")
    [found] = files.repeated_names(tree)
    assert (found.path, found.size) == ("muster/a/jobs.py", 2)
    assert "infra/jobs.py" in found.text


def test_a_control_module_is_tested_by_a_unit_test_that_imports_it() -> None:
    tree = {
        "muster/control/__init__.py": "",
        "muster/control/store.py": _STORE,
        "muster/control/clock.py": "",
        "muster/control/jobs.py": "",
        "muster/contract/names.py": "",
        "tests/unit/control/test_store.py": "from muster.control import store\n",
        "tests/faults/test_jobs.py": "import muster.control.jobs\n",
    }
    assert _paths(files.untested_control(tree)) == ["muster/control/clock.py", "muster/control/jobs.py"]


@pytest.mark.parametrize(
    ("signature", "number"),
    [
        ("a, b, c, d, e", None),
        ("a, b, c, d, e, f", 6),
        ("a, /, b, *, c, d, e, f", 6),
        ("self, a, b, c, d, e", None),
        ("cls, a, b, c, d, e, f", 6),
        ("a, b, c, d, e, *rest, **more", None),
    ],
)
def test_parameters_are_those_that_a_caller_names(signature: str, number: int | None) -> None:
    tree = {"infra/a.py": f"async def f({signature}): ...\n", "bench/b.py": "def f(a, b, c, d, e, f, g): ...\n"}
    assert [found.size for found in definitions.many_parameters(tree)] == ([] if number is None else [number])


def test_the_longest_function_is_measured_from_def_to_its_last_line() -> None:
    tree = {
        "muster/a.py": "@cache\ndef f():\n    '''Doc.'''\n\n    def g():\n        return (\n            1\n        )\n"
    }
    assert {found.text: found.size for found in definitions.function_lengths(tree)} == {
        "f: 7 lines": 7,
        "g: 4 lines": 4,
    }


def test_any_counts_where_code_uses_it() -> None:
    text = 'from typing import Any\n# Any\nx: dict[str, Any] = {}\ny: typing.Any\nz = "Any"\nAnything = 1\n'
    findings = definitions.uses_of_any({"muster/a.py": text, "tests/unit/b.py": text})
    assert {(found.line, found.text) for found in findings} == {(3, "x: dict[str, Any] = {}"), (4, "y: typing.Any")}


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ("failure_class: FailureClass | None = None\n    status: str\n    secondary: str", True),
        ("waiting_for: FailureClass\n    reason: str\n    history: tuple[str, ...]", True),
        ("failure_class: FailureClass\n    reason: str", False),
        ("status: str\n    secondary: str\n    reason: str", False),
        ("failures: Mapping[str, FailureClass]\n    status: str\n    reason: str", False),
    ],
)
def test_a_type_of_an_attempt_has_a_failure_class_and_how_it_came_to_it(fields: str, counts: bool) -> None:
    tree = {"muster/a.py": f"class End:\n    {fields}\n"}
    assert [found.text for found in definitions.attempt_types(tree)] == (["class End"] if counts else [])


_BODY = ["a = f(1)", "if a:", "b = [a]", "c.d(b)", "return b", "x = {a: b}"]


def _repeated(one: list[str], *others: list[str]) -> list[tuple[int, str]]:
    texts = ["\n".join(lines) + "\n" for lines in (one, *others)]
    tree = {f"infra/{name}.py": text for name, text in zip("abcdefghijk", texts, strict=False)}
    return [(found.size, found.text) for found in repeats.repeated_lines(tree)]


def test_six_lines_that_stand_in_two_files_are_a_pair() -> None:
    assert _repeated(_BODY, ["first()", *_BODY]) == [(6, "6 lines again at infra/b.py:2")]
    assert _repeated([*_BODY, "same(1)"], [*_BODY, "same(1)"]) == [(7, "7 lines again at infra/b.py:1")]
    assert _repeated(_BODY[:5], _BODY[:5]) == []
    assert _repeated([*_BODY[:3], "other", *_BODY[3:]], _BODY) == []


def test_what_says_nothing_is_passed_over() -> None:
    padded = ["import os", "from os import (", "    path,", ")", "# why", *_BODY[:3], "", "    )", "# so", *_BODY[3:]]
    assert [size for size, _ in _repeated(padded, [f"   {line}" for line in _BODY])] == [6]
    assert _repeated(["# a", "# b", "# c", "# d", "# e", "# f"], ["# a", "# b", "# c", "# d", "# e", "# f"]) == []


def test_lines_alike_but_for_names_strings_and_numbers_are_a_pair_where_their_shapes_differ() -> None:
    other = ["p = q(2)", "if p:", "r = [p]", "s.t(r)", "return r", "y = {p: r}"]
    assert [size for size, _ in _repeated(_BODY, other)] == [6]
    assert _repeated(_BODY, [other[0], "while p:", *other[2:]]) == []
    assert _repeated([f'"a{n}",' for n in range(6)], [f'"b{n}",' for n in range(6)]) == []


def test_a_shape_in_more_than_eight_places_is_an_idiom_and_the_same_words_are_none() -> None:
    def named(name: str) -> list[str]:
        return [line.replace("a", name) for line in _BODY]

    alike = [named(f"v{n}") for n in range(9)]
    assert len(_repeated(*alike[:8])) == 8 * 7 // 2
    assert _repeated(*alike) == []
    assert len(_repeated(*[_BODY] * 9)) == 9 * 8 // 2


def test_a_file_repeats_itself_once_whatever_it_shares_and_no_run_overlaps_itself() -> None:
    assert [size for size, _ in _repeated([*_BODY, *_BODY])] == [6]
    assert _repeated(["same(1)"] * 11) == []
    more = ["g(a, b)", "while a:", "del b", "c = d", "yield b", "a += 1"]
    assert len(_repeated([*_BODY, "pass", *more], [*more, *_BODY])) == 1


def test_only_the_folder_asked_for_is_compared() -> None:
    text = "\n".join(_BODY)
    tree = {"infra/a.py": text, "muster/a.py": text, "muster/b.py": text}
    assert repeats.repeated_lines(tree) == []
    assert _paths(repeats.repeated_lines(tree, "muster/")) == ["muster/a.py"]


@pytest.mark.parametrize(
    ("word", "text", "number"),
    [
        ("tell", "It tells. Told you. tell_of_end(); TellOf, foretell, toldya", 4),
        ("goes on", "It goes on; and goes\n# on; goes_on(), GoesOn", 4),
        ("roll call", "roll_call.py, RollCall, a roll call", 3),
        ("sight", "insight, oversight, sight", 1),
        ("rung", "wrung, rung", 1),
    ],
)
def test_a_retired_word_is_found_in_prose_and_in_names(word: str, text: str, number: int) -> None:
    assert len(vocabulary.retired_word({"docs/a.md": text}, word)) == number


def test_a_retired_word_is_found_at_its_line_and_not_in_its_own_list() -> None:
    tree = {
        "README.md": "One\n\n  An heir of it.\n",
        "bench/structure/vocabulary.py": "heir",
        "package-lock.json": "heir",
    }
    assert vocabulary.retired_word(tree, "heir") == [Finding("README.md", 3, "An heir of it.")]


def test_every_metric_makes_a_row_with_what_it_was_before() -> None:
    rows = [metric.row({"muster/a.py": "def f():\n    return 1\n"}) for metric in metrics.METRICS]
    longest = next(row for row in rows if row.name == "longest function")
    assert (longest.value, longest.aim, longest.note) == (2, "<= 60", "198 at 3103680 (2026-11)")
    assert len({metric.key for metric in metrics.METRICS}) == len(rows)
    assert {row.name.removeprefix("retired word: ") for row in rows} >= vocabulary.RETIRED.keys()


def test_the_value_of_an_empty_tree_is_zero() -> None:
    assert [metric.row({}).value for metric in metrics.METRICS] == [0] * len(metrics.METRICS)


def test_the_benchmark_is_discovered() -> None:
    assert runner.discover()["structure"] is metrics.run


def test_list_prints_the_places_largest_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = {"muster/a.py": "def f():\n    return 1\n", "muster/b.py": "\ndef g():\n    a = 1\n    return a\n"}
    monkeypatch.setattr(command, "read_sources", lambda: tree)
    assert command.main(["--list", "longest-function"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "muster/b.py:2  g: 3 lines",
        "muster/a.py:1  f: 2 lines",
        "longest function: 3 (aim: <= 60, before: 198)",
    ]


def test_an_unknown_metric_is_refused_beside_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--list", "longest"])
    assert "longest-function" in capsys.readouterr().err
