"""The invariants, judged when a schedule is over."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from muster.contract.run.commit import HOME, Commit
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Floats
from muster.replica.replica_errors import (
    DivergedError,
    FencedError,
    GroupError,
    OtherStateError,
    RendezvousError,
    StoppedError,
)
from muster.replica.store.s3_store import TRIES
from muster.replica.store.transport import StoreUnavailableError
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES, decode_header
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.headers import ContributionHeader
from tests.exploration.activities import Killed
from tests.exploration.trainers import ALGORITHMS
from tests.exploration.world import FOR_EVER, Process, World, ended_well

DECIDING = ("commits/", "amendments/", "verdicts/", "manifests/", "claims/", "initial_state", "options")
NO_QUORUM = "can no longer reach"
SEEN = re.compile(r"round \d+ has (\d+) of at least (\d+) participants")


def problems(world: World) -> list[str]:
    """Everything that went wrong; empty if nothing did."""
    if world.problems:
        return list(world.problems)
    commits = {round_: world.last_commit(round_) for round_ in _committed(world)}
    return [
        *_written_twice(world),
        *_wrong_rounds(world, commits),
        *_counted_twice(world, commits),
        *_excluded_without_reason(world, commits),
        *_failures(world),
        *_unfinished(world),
    ]


def _committed(world: World) -> Iterator[int]:
    round_ = 1
    while world.store.exists(rendezvous_keys.commit(round_)):
        yield round_
        round_ += 1


def _written_twice(world: World) -> list[str]:
    """At most one commit per round, and one of everything else that decides; none of it is deleted."""
    found = [key for key, times in world.store.creates.items() if times > 1 and key.startswith(DECIDING)]
    store = world.store
    gone = [*(key for key in store.deleted if key.startswith(DECIDING)), *store.deleted_statements]
    return [f"{key} was written twice" for key in found] + [f"{key} was deleted" for key in gone]


def _wrong_rounds(world: World, commits: dict[int, Commit]) -> list[str]:
    """What was applied is the mean of what the commit names, each counted once, in one round only."""
    found: list[str] = []
    counted: set[bytes] = set()
    for round_, commit in commits.items():
        if commit.void:
            if round_ in world.means:
                found.append(f"round {round_} is void and was applied")
            before, after = world.states.get(round_ - 1), world.states.get(round_)
            if before is not None and after is not None and not before.is_same(after):
                found.append(f"round {round_} is void and has changed the state")
            continue
        ranks = [member.rank for member in commit.members]
        if len(set(ranks)) != len(ranks):
            found.append(f"round {round_} counts a rank twice: {ranks}")
        given = [
            world.given(rendezvous_keys.contribution(round_, member.rank, member.epoch)) for member in commit.members
        ]
        if not ALGORITHMS[world.setting.algorithm].is_radial:
            found += _other_norms(commit, given)
        for values in given:
            if (marks := values.tobytes()) in counted:
                found.append(f"a contribution to round {round_} was counted before")
            counted.add(marks)
        applied = world.means.get(round_)
        if applied is None:
            continue
        # A codec that loses something has rounded a mean that has shards again, but for what is exact; RDA scales it.
        is_rounded = codec_named(world.setting.codec).loses and not commit.gathers
        is_rounded = is_rounded or ALGORITHMS[world.setting.algorithm].is_radial
        exact = commit.exact if is_rounded else commit.count
        place = commit.count - exact
        if not applied.agree(place, _mean_of(commit, given)[place:]):
            found.append(f"round {round_} is not the mean of what its commit names")
    found += [f"round {round_} was applied and never committed" for round_ in world.means.keys() - commits.keys()]
    return found


def _mean_of(commit: Commit, given: Sequence[Floats]) -> Floats:
    """The mean: of each place in the order of ranks, and of the places in the order of their names."""
    places = sorted({member.place for member in commit.members})
    values, weights = [], []
    for place in places:
        here = [number for number, member in enumerate(commit.members) if member.place == place]
        weights.append(sum(commit.members[number].weight for number in here))
        values.append(_weighted([given[number] for number in here], [commit.members[number].weight for number in here]))
    return values[0] if len(places) == 1 else _weighted(values, weights)


def _weighted(given: Sequence[Floats], weights: Sequence[float]) -> Floats:
    average = sum(weights) / len(weights)
    first, *others = (values * np.float32(weight / average) for weight, values in zip(weights, given, strict=True))
    mean: Floats = sum(others, first) * np.float32(1 / len(given))
    return mean


def crossed_too_much(world: World) -> list[str]:
    """Where nothing goes wrong each place sends and receives a mean's bytes, and twice the others' share of it where
    home makes none of it; whatever the number of replicas."""
    found = []
    for (place, round_, up), crossed in world.crossed.items():
        commit = world.last_commit(round_)
        places = {member.place for member in commit.members}
        if len(commit.members) < world.setting.replicas:
            continue
        share = 1.0 if HOME in places or up else 2 * (len(places) - 1) / len(places)
        blocks = Blocks(commit.count, codec_named(world.setting.codec).for_mean(len(commit.members)), commit.exact)
        most = 1.05 * share * blocks.number * blocks.record_bytes
        if crossed > most:
            found.append(f"{place} moves {crossed} bytes {'up' if up else 'down'} in round {round_}, not {most:g}")
    return found


def _other_norms(commit: Commit, given: Sequence[Floats]) -> list[str]:
    """The norm of what a member has sent is that of its values, statistics aside."""
    norms = (np.linalg.norm(values[: commit.count - commit.exact]) for values in given)
    return [
        f"round {commit.round} takes the norm {norm:g} of rank {member.rank} for {member.sent_norm:g}"
        for member, norm in zip(commit.members, norms, strict=True)
        if member.sent_norm is not None and not np.isclose(member.sent_norm, norm, rtol=1e-4)
    ]


def _counted_twice(world: World, commits: dict[int, Commit]) -> list[str]:
    """No item of a replica's data counts in two rounds of a fragment; a contribution weighs the items it comes from."""
    found: list[str] = []
    fragments = world.setting.fragments
    counted: set[tuple[int, int, int]] = set()
    for round_, commit in commits.items():
        for member in () if commit.void else commit.members:
            items = world.gave.get((round_, member.rank, member.epoch))
            if items is None:
                continue
            if member.weight != len(items):
                found.append(f"round {round_} weighs {len(items)} items of rank {member.rank} as {member.weight:g}")
            carried = {(member.rank, round_ % fragments, item) for item in items}
            again = sorted(carried & counted)
            found += [f"item {item} of rank {rank} counts again in round {round_}" for rank, _, item in again]
            counted |= carried
    return found


def _excluded_without_reason(world: World, commits: dict[int, Commit]) -> list[str]:
    """Only damaged or declined contributions are excluded."""
    found = []
    for round_, commit in commits.items():
        for item in commit.excluded:
            pattern = f"{rendezvous_keys.contributions_of(item.rank)}{round_:08d}-"
            given = [key for key in world.sound if key.startswith(pattern)]
            if world.flipped and world.setting.flips == (item.rank, round_):
                continue
            if item.reason.startswith("the norm") and world.setting.outlier and world.setting.outlier[0] == item.rank:
                world.seen["an outlier is excluded"] += 1
                continue
            if item.rank in world.lost and "gone" in item.reason:
                continue
            if not any(_is_declined(world, key) or _is_damaged(world, key) for key in given):
                found.append(f"round {round_} excludes rank {item.rank}, whose data are sound: {item.reason}")
    return found


def _is_declined(world: World, key: str) -> bool:
    body = world.sound[key]
    return len(body) == HEADER_BYTES and decode_header(key, memoryview(body), ContributionHeader).declined is not None


def _is_damaged(world: World, key: str) -> bool:
    buckets = (world.store, *world.near.values())
    return any(bucket.written.get(key, world.sound[key]) != world.sound[key] for bucket in buckets)


def _failures(world: World) -> list[str]:
    """Processes end well, or for a reason that the schedule gave them."""
    found = []
    for process in world.processes:
        if process.error is not None and not _is_explained(world, process, process.error):
            found.append(f"{process.name}: {process.error!r}")
        elif process.ended and process.error is None and not world.is_over(process):
            found.append(f"{process.name} ended in round {process.round}")
    return found


def _is_explained(world: World, process: Process, error: BaseException) -> bool:
    if isinstance(error, Killed | GroupError):
        return process.killed or bool(process.lost)
    if isinstance(error, FencedError):
        return any(other.rank == process.rank and other is not process for other in world.processes)
    if isinstance(error, StoppedError):
        return process.was_stopped
    if isinstance(error, StoreUnavailableError):
        return process.was_cut_off or _failed_every_try(process, str(error))
    if isinstance(error, DivergedError):
        return _lacks_quorum(world)
    if isinstance(error, OtherStateError):
        return process in world.flipped
    return isinstance(error, RendezvousError) and _is_explained_failure(world, str(error))


def _failed_every_try(process: Process, message: str) -> bool:
    """Whether so many requests for the object failed as a request has tries: rare, and nobody's mistake."""
    return any(f"/{path} could not" in message for path, faults in process.faults.items() if faults >= TRIES)


def _is_explained_failure(world: World, message: str) -> bool:
    setting = world.setting
    if message.startswith("Timed out"):
        quorum = SEEN.search(message)
        # A replica that sees a quorum commits; one that sees a commit computes what is missing itself.
        return quorum is not None and int(quorum[1]) < int(quorum[2]) and setting.timeout_seconds < FOR_EVER
    if NO_QUORUM in message:
        return _lacks_quorum(world)
    if "is damaged" in message:
        # The only complete snapshot is damaged in the bucket: it cannot be loaded until a newer one is complete.
        return any(key.startswith((rendezvous_keys.SNAPSHOTS, rendezvous_keys.REDUCED)) for key in setting.poisoned)
    if "has been damaged" in message:
        return any(key.startswith(rendezvous_keys.CONTRIBUTIONS) for key in setting.poisoned)
    return False


def _lacks_quorum(world: World) -> bool:
    """Whether one unusable contribution leaves less than a quorum."""
    setting = world.setting
    if world.flipped:
        # The only other contribution starts from other parameters, and nobody can tell which are right.
        return True
    harmed = setting.declines is not None or any(
        key.startswith(rendezvous_keys.CONTRIBUTIONS) for key in setting.poisoned
    )
    return harmed and setting.min_participants == setting.replicas


def _unfinished(world: World) -> list[str]:
    """No process waits for ever, and every rank that was not lost for good trains to the end.

    Except where the only complete snapshot is damaged in the bucket: a rank that has to load it is lost. And except
    where a rank has no rerun left because a round needs a contribution that is unusable: the others wait for it.
    """
    if world.seen["ended: damaged"]:
        return []
    waiting = [] if world.living == [] else [f"{len(world.living)} processes wait for ever"]
    unfinished = [
        process
        for process in world.lasts.values()
        if not process.killed and not ended_well(world.processes, process.rank)
        if process.rank not in world.closed
    ]
    if not world.setting.reruns:
        return waiting
    if _lacks_quorum(world) and any(_is_hopeless(process) for process in unfinished):
        return []
    return waiting + [f"rank {process.rank} never ends well: {process.error!r}" for process in unfinished]


def _is_hopeless(process: Process) -> bool:
    return NO_QUORUM in str(process.error)
