"""A script for torchrun and a loop with FSDP2 train one model: in one process, and in two processes of a replica."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch

from examples.frameworks import fsdp2, torchrun_script
from muster.replica.group.inner_group import InnerGroup
from muster.replica.group.launcher import free_port
from muster.replica.group.member import Member
from tests.support.contexts import all_succeed, board_of_a_group, launched
from tests.support.peers import Run


def test_a_torchrun_script_and_an_fsdp2_loop_train_one_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.zeros(1)])  # imports what the processes would import each
    with board_of_a_group() as board:
        members = [(0, Member(), torchrun_script.train, free_port())]
        port = free_port()
        members += [(1, Member(InnerGroup(index, 2, index), board), fsdp2.train, port) for index in range(2)]
        all_succeed([partial(launched, run, *member) for member in members])
    # Both processes of the second replica have contributed; each replica trained on its own 4 rounds of 5 steps.
    commit = run.commit(4)
    assert [(member.rank, member.parts, member.weight) for member in commit.members] == [
        (0, None, 5 * 8 * 16),
        (1, 2, 5 * 2 * 2 * 8 * 16),
    ]
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("loss=")]
    losses = [float(line.split()[0][5:]) for line in lines]
    assert len(losses) == 4
    assert losses[-1] < losses[0] / 5


def test_the_script_differs_in_seven_lines() -> None:
    source = Path(torchrun_script.__file__).read_text(encoding="utf-8")
    assert sum("# Muster:" in line for line in source.splitlines()) == 7
