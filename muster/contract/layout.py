"""The keys of a run in the bucket. The first part of a key decides who may read and write it.

| prefix | written by | read by |
|---|---|---|
| `control/` | control plane | control plane (holds the task tokens); of some objects clients |
| `queue/` | control plane | control plane, clients |
| `ended/` | control plane | control plane, clients |
| `runs/` | control plane, once | replicas |
| `rendezvous/` | replicas | replicas; control plane and clients for progress |
| `checkpoints/` | SageMaker with the replica role | replicas; clients by name |
| `output/` | SageMaker with the replica role; replicas the run's model | control plane; of the model clients |
| `notices/` | replicas on clusters | control plane (`hyperpod/notices.py`) |
| `recipes/` | clients and the control plane | control plane; of resolved recipes replicas and clients |
"""

from __future__ import annotations

from dataclasses import dataclass

# Every first part of a key in the stack's bucket: nothing else belongs under these names.
STACK_FOLDERS = (
    *("control", "queue", "ended", "runs", "rendezvous", "checkpoints", "output", "notices"),
    *("inbox", "source", "packages", "recipes"),
)


# Below a run's output.
MODEL_FOLDER = "model/"


def model_manifest_name(round_: int) -> str:
    """The name of a model's manifest below the run's output."""
    return f"model-{round_:08d}.json"


def model_evaluation_name(round_: int) -> str:
    """The name of a model's evaluation below the run's output."""
    return f"model-{round_:08d}-evaluation.json"


def s3_uri(bucket: str, key: str) -> str:
    """`s3://bucket/key`."""
    return f"s3://{bucket}/{key}"


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of `uri`; the key may be empty.

    Raises:
        ValueError: not of the form `s3://bucket[/key]`.
    """
    scheme, separator, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not separator or not bucket:
        message = f"{uri!r} is not of the form s3://bucket/key"
        raise ValueError(message)
    return bucket, key


def path_in_channel(key: str, prefix: str) -> str:
    """A key's path within a channel with this prefix: below the prefix's folder, as SageMaker places it."""
    rest = key[len(prefix) :]
    if not prefix or prefix.endswith("/") or rest.startswith("/"):
        return rest.lstrip("/")
    return key[prefix.rfind("/") + 1 :]


@dataclass(frozen=True)
class RunLayout:
    """The keys of one run (no bucket: `s3_uri` joins the two).

    The replicas of a sweep train apart: `of_rank` has the keys of one of them, where it differs from the run's.
    """

    run: str
    part: str = ""

    def of_rank(self, rank: int) -> RunLayout:
        """The keys of what replica `rank` of a sweep has for itself: run document, rendezvous and model."""
        return RunLayout(self.run, f"r{rank}/")

    @property
    def plan(self) -> str:
        """The plan: written once."""
        return f"control/{self.run}/plan.json"

    @property
    def fence(self) -> str:
        """The fence: while it exists the run is stopping. The first reason stays, unless the run is cancelled."""
        return f"control/{self.run}/stopping.json"

    @property
    def result(self) -> str:
        """The settlement: written once."""
        return f"control/{self.run}/result.json"

    @property
    def announced(self) -> str:
        """The mark of a run whose end was announced: so it is announced once, however often it is completed."""
        return f"control/{self.run}/announced.json"

    @property
    def finished(self) -> str:
        """The mark of a run whose end is complete: nothing is left to announce, to continue or to stop."""
        return f"control/{self.run}/finished.json"

    @property
    def page(self) -> str:
        """The page of the ended run (`muster.report`): written once, after the settlement."""
        return f"control/{self.run}/report.html"

    @property
    def lineage(self) -> str:
        """The lineage of a continuation: written once, for clients."""
        return f"control/{self.run}/lineage.json"

    @property
    def continued_by(self) -> str:
        """The run that continues this one: written once, so there is at most one."""
        return f"control/{self.run}/continued_by.json"

    @property
    def records(self) -> str:
        """Prefix of the records."""
        return f"control/{self.run}/replicas/"

    def record(self, rank: int) -> str:
        """The record of a replica; every write of it is a compare-and-swap."""
        return f"{self.records}{rank}.json"

    @property
    def roll_up(self) -> str:
        """Prefix of the roll-up (`roll_up.py`): the records without their task tokens, for clients."""
        return f"control/{self.run}/rollup/"

    def roll_up_shard(self, shard: int) -> str:
        """One shard of the roll-up; every write is a compare-and-swap."""
        return f"{self.roll_up}{shard:04}.json"

    @property
    def lost(self) -> str:
        """Prefix of the marks of lost replicas: they failed, and their retry budget is used up."""
        return f"control/{self.run}/lost/"

    @property
    def queue_token(self) -> str:
        """The task token of a queued run (`run_queue.py`)."""
        return f"control/{self.run}/queue_token.json"

    @property
    def seats(self) -> str:
        """Which replicas of an elastic run are wanted; every write is a compare-and-swap."""
        return f"control/{self.run}/seats.json"

    @property
    def parked(self) -> str:
        """Prefix of the task tokens of parked seats; every write is a compare-and-swap."""
        return f"control/{self.run}/parked/"

    @property
    def spent(self) -> str:
        """Prefix of the marks that add up what a run with a cost ceiling has spent (`run_cost.py`)."""
        return f"control/{self.run}/spent/"

    @property
    def document(self) -> str:
        """The run document, which the replicas read."""
        return f"runs/{self.run}/{self.part}document.json"

    @property
    def rendezvous(self) -> str:
        """Prefix under which the replicas exchange data."""
        return f"rendezvous/{self.run}/{self.part}"

    @property
    def commits(self) -> str:
        """Prefix of the commits, whose keys sort by round."""
        return f"{self.rendezvous}commits/"

    def commit(self, round_: int) -> str:
        """The commit of a round."""
        return f"{self.commits}{round_:08d}.json"

    def checkpoints(self, rank: int) -> str:
        """Prefix with which SageMaker syncs a replica's checkpoint directory."""
        return f"checkpoints/{self.run}/r{rank}/"

    @property
    def output(self) -> str:
        """Prefix under which SageMaker makes one folder per job, and the replicas write the run's model."""
        return f"output/{self.run}/"

    @property
    def results(self) -> str:
        """Below this the replicas write the model. In the output, where no job has such a name."""
        return f"{self.output}{self.part}"

    @property
    def model(self) -> str:
        """Prefix of the files of the run's model. No job is named so: a job's name ends with its attempt."""
        return f"{self.results}{MODEL_FOLDER}"

    def model_manifest(self, round_: int) -> str:
        """The list of the files of the model that was written after a round: written once, after the files."""
        return f"{self.results}{model_manifest_name(round_)}"

    def model_evaluation(self, round_: int) -> str:
        """What was measured on that model: written once."""
        return f"{self.results}{model_evaluation_name(round_)}"
