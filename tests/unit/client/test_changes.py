"""Values that a launch sets in a spec, by their paths."""

import re
from pathlib import Path

import pytest

from muster.client.cli.spec_file import read_spec
from muster.client.client_errors import OptionError
from muster.client.launch.changes import read_changes, with_changes
from muster.contract.errors import SpecError

SPEC = {"replicas": 2, "kwargs": {"lr": 0.1, "sizes": [1, 2]}, "input_data_config": [{"channel_name": "train"}]}


def test_values_are_those_of_a_spec_and_paths_lead_through_keys_and_items() -> None:
    words = ["replicas=8", "kwargs.lr=3e-4", "kwargs.sizes.1=5", "kwargs.new.deep=[a, b]", "spot=true", "name="]
    changed = with_changes(SPEC, read_changes(words))
    kwargs = {"lr": 3e-4, "sizes": [1, 5], "new": {"deep": ["a", "b"]}}
    assert changed == {**SPEC, "replicas": 8, "kwargs": kwargs, "spot": True, "name": None}
    assert SPEC["kwargs"] == {"lr": 0.1, "sizes": [1, 2]}


def test_what_does_not_fit_is_named_with_its_path() -> None:
    for word, error, words in (
        ("kwargs.lr", OptionError, "'kwargs.lr'; write path=value"),
        ("=1", OptionError, "write path=value"),
        ("kwargs={", OptionError, "its value is no YAML"),
        ("kwargs.lr.x=1", SpecError, "kwargs.lr: a number, which has no parts"),
        ("kwargs.sizes.2=1", SpecError, "kwargs.sizes.2: a list of 2 items has no '2'"),
    ):
        with pytest.raises(error, match=re.escape(words)):
            with_changes(SPEC, read_changes([word]))


def test_a_command_changes_the_spec_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("replicas: 2\ntrainer: m:f\n")
    document, _, _ = read_spec(str(tmp_path / "run.yaml"), "named", ["source_dir=code", "name=other"])
    assert document == {"replicas": 2, "trainer": "m:f", "source_dir": f"{tmp_path}/code", "name": "named"}
