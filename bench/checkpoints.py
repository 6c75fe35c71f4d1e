"""What is lost when a replica is killed, with inner states in both tiers, and what saving them costs its training.

Whole processes: one replica of `python -m muster.replica`, which is killed (SIGKILL) after a random inner step, as soon
as it has said that the step is done, and started again. Lost are the steps that it has done and does again.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.checkpoint_trainer import STEPS
from bench.rounds.group import BUCKET, client_environment
from bench.rounds.server import Server, running_server
from bench.table import Row
from muster.contract.run.replica_variables import (
    ENV_ATTEMPT,
    ENV_DOCUMENT,
    ENV_LOCAL_STATES,
    ENV_PROCESSES,
    ENV_RANK,
    ENV_RUN,
)
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.contract.training.source_delivery import ENV_BASE_DIR

MEMORY_EVERY, S3_EVERY = 10, 20
KILLS, LOST_INSTANCES = 20, 6
SEED = 15
COUNT = 500_000  # 2 MB of parameters, as much of the inner optimizer
STEP_SECONDS = 0.01
LONGEST = 60  # steps from a start to a kill, a phase and more
_END = 100_000_000


@dataclass
class _Replica:
    """One replica with what survives its processes."""

    root: Path
    server: Server
    name: str
    checkpoints: CheckpointTiers | None
    steps: int = _END
    attempt: int = 0
    seconds: dict[int, float] = field(default_factory=dict)  # that `outer.step` has taken, by the step

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[str]]:
        """A process of it."""
        self.attempt += 1
        base = self.root / self.name
        base.mkdir(exist_ok=True, parents=True)
        document = RunDocument(
            run=self.name,
            plan_digest="0",
            replicas=1,
            trainer="bench.checkpoint_trainer:train",
            kwargs={"count": COUNT, "steps": self.steps, "step_seconds": STEP_SECONDS},
            rendezvous_uri=f"s3://{BUCKET}/rendezvous/{self.name}/",
            min_participants=1,
            grace_seconds=30,
            timeout_seconds=600,
            checkpoints=self.checkpoints,
        )
        (base / "run.json").write_bytes(document.to_json())
        environment = client_environment(self.server, self.name) | {
            ENV_DOCUMENT: (base / "run.json").as_uri(),
            ENV_RUN: self.name,
            ENV_RANK: "0",
            ENV_ATTEMPT: str(self.attempt),
            ENV_PROCESSES: "1",
            ENV_BASE_DIR: str(base),
            ENV_LOCAL_STATES: str(self.local),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "muster.replica"]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGKILL)

    @property
    def local(self) -> Path:
        return self.root / f"{self.name}-local"

    def killed_after(self, steps: int) -> tuple[int, int]:
        """The step at which a process begins, and the last one that it does before it is killed `steps` later."""
        begins, done = -1, -1
        with self.process() as process:
            assert process.stdout is not None
            for line in process.stdout:
                values = _values(line)
                if "begins_at" in values:
                    begins = done = int(values["begins_at"])
                if "done" in values:
                    done = int(values["done"])
                    self.seconds[done] = float(values["took"])
                if 0 <= begins <= done - steps:
                    process.send_signal(signal.SIGKILL)
            # What it has written before the signal was read until the end of its output.
            if begins < 0:
                _fail(process)
        return begins, done

    def digest(self) -> str:
        """The parameters after all `steps`, of a process that is not killed."""
        with self.process() as process:
            assert process.stdout is not None
            found = [_values(line)["digest"] for line in process.stdout if line.startswith("digest=")]
            if not found:
                _fail(process)
        return found[0]


def run() -> list[Row]:
    """All rows; one to two minutes on a machine with nothing else to do."""
    draws = random.Random(SEED)  # noqa: S311 - the same kills each time
    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        root = Path(folder)
        tiers = CheckpointTiers(memory_every=MEMORY_EVERY, s3_every=S3_EVERY)
        replica = _Replica(root, server, "killed", tiers)
        lost = _lost(replica, [draws.randint(1, LONGEST) for _ in range(KILLS)], instance=False)
        moved = _Replica(root, server, "moved", tiers)
        lost_with_it = _lost(moved, [draws.randint(1, LONGEST) for _ in range(LOST_INSTANCES)], instance=True)
        replica.steps = replica_end = (replica.attempt + 1) * LONGEST
        same = replica.digest() == _Replica(root, server, "undisturbed", None, replica_end).digest()
    return [
        Row("steps lost at a kill, at most", max(lost), "steps", f"<= {MEMORY_EVERY}", note=f"{KILLS} kills: {lost}"),
        Row("steps lost at a kill, median", statistics.median(lost), "steps", f"<= {MEMORY_EVERY}"),
        Row(
            *("steps lost with the instance, at most", max(lost_with_it), "steps", f"<= {S3_EVERY}"),
            note=f"{LOST_INSTANCES} times: {lost_with_it}",
        ),
        Row("ends with the bits of an undisturbed run", float(same), "of 1", "== 1"),
        _step_row(replica.seconds),
        *_cost_rows(),
    ]


def _lost(replica: _Replica, draws: list[int], *, instance: bool) -> list[int]:
    """The steps that each kill costs."""
    lost, done = [], 0
    for steps in draws:
        begins, after = replica.killed_after(steps)
        lost.append(done - begins)
        done = after
        if instance:
            shutil.rmtree(replica.local, ignore_errors=True)
            shutil.rmtree(replica.root / replica.name / "checkpoints", ignore_errors=True)
    begins, _ = replica.killed_after(1)
    return [*lost[1:], done - begins]


def _step_row(seconds: dict[int, float]) -> Row:
    """What a step that saves takes, beside one that does not. Steps that end a round are left out."""
    within = {step: took for step, took in seconds.items() if step % STEPS}
    saving = [took for step, took in within.items() if step % MEMORY_EVERY == 0]
    others = [took for step, took in within.items() if step % MEMORY_EVERY]
    size = 8 * COUNT / 1e6
    return Row(
        *(f"outer.step() that saves {size:g} MB", 1000 * statistics.median(saving), "ms"),
        peer=1000 * statistics.median(others),
        note="median, while other processes train; a step that saves nothing as peer",
    )


_COST = """
import io, json, sys, time
import numpy as np
import torch
from muster.replica.frontends.torch_arrays import TorchArrays
from muster.replica.states.state_buffer import Layout
torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024, bias=False) for _ in range(32)))
optimizer = torch.optim.AdamW(model.parameters())
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)
optimizer.step()
state = {"own": optimizer.state_dict(), "model": model.state_dict()}
arrays = TorchArrays()
memory = None
def save():
    global memory
    layout = Layout.of(state, arrays, 0)
    if memory is None:
        memory = arrays.memory(layout.size + 2**20)
    layout.copy_to(memory, arrays)
    return layout.size
def seconds(action, times=5):
    action()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return sorted(found)[times // 2]
print(json.dumps([save(), seconds(save), seconds(lambda: torch.save(state, io.BytesIO()))]))
"""


def _cost_rows() -> list[Row]:
    """How long the training loop of a PyTorch replica waits for the copy of its state."""
    done = subprocess.run([sys.executable, "-c", _COST], capture_output=True, text=True, check=True, timeout=300)
    size, ours, saved = json.loads(done.stdout)
    note = "the copy on the training loop; torch.save to memory as peer"
    return [Row(f"a state of {size / 2**20:.0f} MiB, blocked", 1000 * ours, "ms", peer=1000 * saved, note=note)]


def _values(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split() if "=" in part)


def _fail(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    message = f"the replica has failed: {process.stderr.read()[-2000:]}"
    raise RuntimeError(message)
