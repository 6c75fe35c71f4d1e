"""Where the objects of a rendezvous lie, below the run's rendezvous prefix.

Data lie under their rank or shard, then by round: where S3 has divided a partition of keys, in a lineage that has
trained for long, the load is spread. Numbers are padded, so that the keys of a prefix sort by round.
"""

from __future__ import annotations

from muster.contract.run.finding import findings_of

CONTRIBUTIONS = "contributions/"
SUMS = "sums/"
REDUCED = "reduced/"
SNAPSHOTS = "snapshots/"
TORCHFT = "torchft/"
COMMITS = "commits/"

# The process that uploads the initial state.
INITIAL_STATE_SOURCE = "initial_state.json"
# The settings that all replicas share.
OPTIONS = "options.json"
# The folder in which trainers with their own loop may keep objects of theirs.
TRAINER = "trainer"


def claim(rank: int, epoch: int) -> str:
    """A claim of a rank; the one with the highest epoch holds it."""
    return f"claims/{rank:05d}/{epoch:06d}.json"


def announced_after(round_: int) -> str:
    """The claims that were made in an elastic run by processes that had seen `round_` last."""
    return f"announced/{round_:08d}/"


def announced(round_: int, rank: int, epoch: int, loads: bool) -> str:
    """That there is a claim; `loads` as in the claim."""
    return f"{announced_after(round_)}{rank:05d}-{epoch:06d}{'-loads' if loads else ''}"


def contributions_of(rank: int) -> str:
    """The contributions of a rank's processes to all rounds."""
    return f"{CONTRIBUTIONS}{rank:05d}/"


def contribution(round_: int, rank: int, epoch: int) -> str:
    """One process's contribution to a round."""
    return f"{contributions_of(rank)}{round_:08d}-{epoch:06d}"


def contribution_part(contribution_key: str, part: int) -> str:
    """One process's part of a contribution that several processes of a replica have made."""
    return f"{contribution_key}-{part:04d}"


def commit(round_: int, revision: int = 0) -> str:
    """The list of a round's members, or an amendment of it."""
    return f"{COMMITS}{round_:08d}.json" if revision == 0 else f"amendments/{round_:08d}-{revision:03d}.json"


def finding(rule: str, run: str, number: str) -> str:
    """What a rule that watches the training of `run` has found. Beside the commits: who lists those finds it, too."""
    return f"{COMMITS}{findings_of(run)}{rule}-{number}.json"


def sums_of(shard: int) -> str:
    """One shard of what the contributions of a place have come to, of all places and rounds."""
    return f"{SUMS}{shard:05d}/"


def place_sum(place: str, round_: int, members: str, shard: int) -> str:
    """One shard of a place's sum. `members`: the digest of those whose contributions it has, of any revision."""
    return f"{sums_of(shard)}{round_:08d}-{place}-{members}"


def reduced_of(shard: int) -> str:
    """One shard of all rounds' means."""
    return f"{REDUCED}{shard:05d}/"


def reduced(round_: int, revision: int, shard: int) -> str:
    """One shard of a round's mean."""
    return f"{reduced_of(shard)}{round_:08d}-{revision:03d}"


def verdict(round_: int, revision: int, part: int) -> str:
    """Whether the contributions of a round that has no shards of its mean can be used: part 0 or 1 of them."""
    return f"verdicts/{part}/{round_:08d}-{revision:03d}.json"


def snapshots_of(shard: int) -> str:
    """One shard of all snapshots."""
    return f"{SNAPSHOTS}{shard:05d}/"


def snapshot(round_: int, source: str, shard: int) -> str:
    """One shard of the global state after a round, as `source` wrote it; round 0 is the initial state."""
    return f"{snapshots_of(shard)}{round_:08d}-{source}"


def before(folder: str, round_: int) -> str:
    """Where the keys of `round_` start in the folder of a rank or shard: all earlier rounds sort before this."""
    return f"{folder}{round_:08d}"


def manifest(round_: int) -> str:
    """The last object of a snapshot; marks it as complete."""
    return f"manifests/{round_:08d}.json"


def model_writer(number: int) -> str:
    """One of the processes that write the model of a run, in order; the last one does."""
    return f"model-writers/{number:06d}.json"


def torchft_states_of(shard: int) -> str:
    """One shard of the states of torchft's algorithms, of all rounds."""
    return f"{TORCHFT}{shard:05d}/"


def torchft_state(round_: int) -> str:
    """The state of torchft's algorithms after a round, in one shard."""
    return before(torchft_states_of(0), round_)


def inner_states_of_rank(rank: int) -> str:
    """The inner states of a replica's processes between two rounds."""
    return f"inner-states/{rank:05d}/"


def inner_states_of(rank: int, part: int, parts: int) -> str:
    """Those of one of the `parts` processes."""
    return f"{inner_states_of_rank(rank)}{part:04d}of{parts:04d}/"
