"""A script for torchrun and a loop with FSDP2 train one model: in one process, and in two processes of a replica."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch

from examples.frameworks import fsdp2, torchrun_script
from muster.replica.context import Context
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.group.launcher import free_port
from muster.replica.group.member import Member
from muster.replica.group.network_board import BoardServer, NetworkBoard
from muster.replica.group.spawning import Crew, group_variables
from tests.support.contexts import context_of
from tests.support.peers import PATIENT_SECONDS, Run

Train = Callable[[Context], None]


def process(run: Run, rank: int, member: Member, train: Train, port: int) -> None:
    """One process of replica `rank`, with the variables that Muster's launcher sets."""
    group = member.group
    crew = Crew((), group.size, 0, 1, ("127.0.0.1", port), f"replica-{rank}")
    os.environ.update(group_variables(crew, group.rank), CUDA_VISIBLE_DEVICES="")
    torch.set_num_threads(1)
    train(context_of(run, rank, member=member))


def test_a_torchrun_script_and_an_fsdp2_loop_train_one_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    torch.optim.AdamW([torch.zeros(1)])  # imports what the processes would import each
    server = BoardServer(LocalBoard(), ("127.0.0.1", 0))
    board, port = NetworkBoard("127.0.0.1", server.port), free_port()
    members = [(0, Member(), torchrun_script.train, free_port())]
    members += [(1, Member(InnerGroup(index, 2, index), board), fsdp2.train, port) for index in range(2)]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=process, args=(run, *member), daemon=True) for member in members]
    try:
        for started in processes:
            started.start()
        for started in processes:
            started.join(PATIENT_SECONDS)
        assert [ended.exitcode for ended in processes] == [0, 0, 0]
    finally:
        for started in processes:
            started.kill()
        server.close()
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
