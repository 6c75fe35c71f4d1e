"""The GPT demo's number of processes, and the losses that it remembers by that number."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.char_gpt.processes import asked_processes, remember
from muster import MusterError, Spec


def spec(**changes: object) -> Spec:
    return Spec(replicas=4, trainer="a:b", **changes)  # type: ignore[arg-type]


def test_the_number_of_processes_is_the_users_or_that_of_the_spec() -> None:
    assert asked_processes("", spec(), 8) == 1
    assert asked_processes("", spec(processes="auto"), 8) == 1
    assert asked_processes("", spec(processes=4), 8) == 4
    assert asked_processes("2", spec(processes=4), 8) == 2


@pytest.mark.parametrize("text", ["3", "0", "-1", "two", "16", "2.0"])
def test_a_number_that_divides_no_batch_is_refused(text: str) -> None:
    with pytest.raises(MusterError, match=f"PROCESSES is {text}; allowed: 1, 2, 4, 8, because"):
        asked_processes(text, spec(), 8)


def test_losses_of_the_same_training_are_remembered(tmp_path: Path) -> None:
    file, training = tmp_path / "losses.json", {"replicas": 4, "steps": 1600}
    assert remember(file, training, 1, 1.51) == {}
    assert remember(file, training, 1, 1.512) == {}
    assert remember(file, training, 2, 1.513) == {1: 1.512}
    assert remember(file, training, 4, None) == {1: 1.512, 2: 1.513}
    assert remember(file, {**training, "steps": 800}, 2, 1.6) == {}
    assert remember(file, training, 1, 1.51) == {}


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"training": {}, "losses": 7}', '{"training": {}, "losses": {"1": []}}']
)
def test_a_file_that_cannot_be_read_is_written_again(tmp_path: Path, content: str) -> None:
    file = tmp_path / "losses.json"
    file.write_text(content)
    assert remember(file, {}, 1, 1.5) == {}
    assert remember(file, {}, 2, 1.5) == {1: 1.5}
