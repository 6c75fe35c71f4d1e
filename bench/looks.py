"""Runs of any size in a bucket, written as the control plane writes them, and what clients ask of AWS to see them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import boto3

from muster import Muster
from muster.client.cli.page_server import LOOK_SECONDS
from muster.client.client_errors import WaitTimeoutError
from muster.client.runs.continued_runs import latest
from muster.client.sdk import POLL_SECONDS
from muster.contract import timestamps
from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.commit import Commit, Member
from muster.contract.run.plan import Place, Plan
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_count
from muster.contract.spec.spec_reader import parse_spec
from muster.local import LocalCloud

_NOW = timestamps.text(datetime.now(UTC))
_STEPS = ("Starting", "Downloading", "Training")


class WrittenRun:
    """A run whose replicas train: its execution waits, and its objects are in the bucket."""

    def __init__(self, cloud: LocalCloud, stack: str, name: str, replicas: int) -> None:
        self.stack, self.name, self.replicas = stack, name, replicas
        self._cloud, self._s3, self._layout = cloud, cloud.client("s3"), RunLayout(name)
        self._round, self._revision = 0, 1
        spec = {"name": name, "replicas": replicas, "trainer": "package.module:train"}
        Muster(stack, boto3.Session()).launch(spec)
        place = Place(bucket=stack.lower(), role_arn="role", job_prefix="muster", package_uri="s3://bucket/package")
        complete = parse_spec({**spec, "image": "image", "instance_type": "ml.m5.large"})
        plan = Plan.make(name, "arn:aws:states:::execution:runs:name", _NOW, place, complete)
        self._put(self._layout.plan, plan.to_json())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.change, range(shard_count(replicas))))
        self.commit()

    def change(self, shard: int) -> None:
        """Write a shard anew."""
        self._revision += 1
        entries = tuple(self._entry(rank) for rank in ranks_of(shard % shard_count(self.replicas), self.replicas))
        key = self._layout.roll_up_shard(shard % shard_count(self.replicas))
        self._put(key, RollUpShard(run=self.name, replicas=entries).to_json())

    def commit(self) -> None:
        """Commit a round of all replicas."""
        self._round += 1
        member = {"attempt": 1, "incarnation": 1, "epoch": 1, "weight": 1.0, "checksum": "0" * 8}
        members = tuple(Member(rank=rank, metrics={"loss": 1.0}, **member) for rank in range(self.replicas))  # type: ignore[arg-type]
        commit = Commit(
            run=self.name,
            round=self._round,
            committed_at=_NOW,
            count=1,
            members=members,
            epochs=(1,) * self.replicas,
        )
        self._put(f"{self._layout.commits}{self._round:08d}.json", commit.to_json())

    def calls(self, look: Callable[[], object]) -> Counter[str]:
        """The client's calls during `look`, by service."""
        self._cloud.calls.reset()
        look()
        counts: Counter[str] = Counter()
        for call in self._cloud.calls.report():
            counts[call.service] += call.count
        return counts

    def _entry(self, rank: int) -> ReplicaEntry:
        history = tuple(Transition(at=_NOW, secondary=step) for step in _STEPS)
        attempt = Attempt(
            attempt=1,
            job=f"muster-{self.name}-r{rank}-a1",
            launched_at=_NOW,
            instance_type="ml.m5.large",
            status="InProgress",
            secondary="Training",
            history=history,
        )
        return ReplicaEntry(rank=rank, revision=self._revision, attempts=(attempt,))

    def _put(self, key: str, body: bytes) -> None:
        self._s3.put_object(Bucket=self.stack.lower(), Key=key, Body=body)


def watch(run: WrittenRun, seconds: float) -> Counter[str]:
    """The calls of three watchers in so many seconds: `status --watch`, a page with a browser, TorchX's polling.

    Meanwhile a replica changes in each second, and a round is committed in every fifth.
    """
    named = Muster(run.stack, boto3.Session()).run(run.name)
    page, asked = Muster(run.stack, boto3.Session()).run(run.name).live_page(), Muster(run.stack, boto3.Session())
    until = time.monotonic() + seconds

    def status() -> None:
        with suppress(WaitTimeoutError):
            named.wait(timeout=seconds, progress=lambda _: None)

    def polled(look: Callable[[], Any], pause: float) -> None:
        while time.monotonic() < until:
            look()
            time.sleep(pause)

    def look() -> None:
        with _threads(
            status,
            lambda: polled(page.look, LOOK_SECONDS),
            lambda: polled(lambda: latest(asked, run.name), POLL_SECONDS),
        ):
            second = 0
            while time.monotonic() < until:
                time.sleep(1)
                second += 1
                run.change(second)
                if second % 5 == 0:
                    run.commit()

    return run.calls(look)


@contextmanager
def _threads(*functions: Callable[[], object]) -> Iterator[None]:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
