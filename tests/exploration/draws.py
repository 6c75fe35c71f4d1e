"""What a seed stands for: the run, what goes wrong in it, and the order of its steps."""

import random
from dataclasses import dataclass, replace

from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.wire import rendezvous_keys
from tests.exploration.schedules import Event, Randomly, explore
from tests.exploration.trainers import ALGORITHMS
from tests.exploration.world import FOR_EVER, Choices, Setting, World

# Faults come before a process has taken so many steps: while it joins, in the first round, or later.
STEPS = (30, 80, 160)
STEPS_AFTER_COMMIT = 40
FRONT_ENDS = ("arrays", "groups", "diloco", "torchft", "elastic", "elastic-diloco", "places")
PLACES = ("home", "oregon", "tokyo")
# How often a rank is started again after a failure: more than any schedule needs.
RERUNS_MAX = 40


@dataclass(frozen=True)
class Plan:
    """A schedule but for the order of its steps."""

    setting: Setting
    events: tuple[Event, ...]


def front_end_of(seed: int) -> str:
    """Of ten schedules one trains with torchft's front end, one with DiLoCo, one has replicas of several processes.

    In one more seats come and go, and in one replicas train at several places.
    """
    if seed % 10 == 3:
        return "elastic-diloco" if seed % 40 == 3 else "elastic"
    return {9: "torchft", 7: "diloco", 5: "groups", 6: "places"}.get(seed % 10, "arrays")


def with_early_finishes(rng: random.Random, plan: Plan) -> Plan:
    """The plan with one or two ranks whose trainers return early. All contributions are usable: few may be left."""
    usable = replace(plan.setting, poisoned=(), declines=None, flips=None)
    setting = replace(usable, on_early_finish=rng.choice(list(OnEarlyFinish)))
    ranks = rng.sample(range(setting.replicas), rng.choice([1, 1, 2]))
    return replace(plan, setting=replace(setting, early=tuple((rank, rng.randrange(setting.rounds)) for rank in ranks)))


def run_seed(seed: int, front_end: str = "arrays") -> tuple[Plan, World]:
    """One schedule and its plan. In every tenth one some trainers return early, in another one some run on clusters."""
    rng = random.Random(seed)  # noqa: S311 - has to be repeatable, guards nothing
    if front_end == "places":
        above = rng.choice(["arrays", "arrays", "arrays", "groups", "diloco", "elastic", "elastic-diloco"])
        plan = draw(rng, above)
        plan = with_places(rng, with_seats(rng, plan) if above.startswith("elastic") else plan)
        return plan, explore(plan.setting, Randomly(rng), plan.events, Choices(rng))
    if front_end.startswith("elastic"):
        plan = with_seats(rng, draw(rng, front_end))
        return plan, explore(plan.setting, Randomly(rng), plan.events, Choices(rng))
    plan = draw(rng, front_end)
    if front_end == "arrays" and seed % 10 == 4:
        plan = with_early_finishes(rng, plan)
    if front_end == "diloco" and seed % 30 == 7:
        # Not drawn: random orders almost never come to it.
        number, setting = seed // 30, plan.setting
        overtaken = number % setting.replicas, 1 + number // setting.replicas % setting.rounds
        plan = replace(plan, setting=replace(setting, overtaken=overtaken))
    if seed % 10 == 7:
        plan = replace(plan, setting=replace(plan.setting, clusters=((1, plan.setting.replicas - 1),)))
    return plan, explore(plan.setting, Randomly(rng), plan.events, Choices(rng))


def draw(rng: random.Random, front_end: str) -> Plan:
    """The run, and what goes wrong in it."""
    replicas = rng.choice([3, 3, 4])
    setting = Setting(
        replicas=replicas,
        min_participants=rng.randrange(1, replicas),
        rounds=rng.randrange(2, 6),
        snapshot_rounds=rng.choice([1, 1, 2, 3]),
        grace_seconds=rng.choice([0.0, 0.5, 2.0]),
        connections=rng.choice([1, 1, 2, 3]),
        hides_missing=rng.random() < 0.2,
        fault_rate=rng.choice([0.0, 0.0, 0.02, 0.1]),
        reruns=RERUNS_MAX,
        front_end=front_end,
    )
    if rng.random() < 0.2:
        setting = replace(setting, count=2048, shard_bytes=1100)
    # On either side of the border: 9 are more than there ever are. Not drawn, so that a seed's choices stay what they
    # were.
    border = (None, None, 2, 9)[(setting.rounds + setting.connections + setting.min_participants) % 4]
    setting = replace(setting, gathers=border)
    if rng.random() < 0.25:
        setting = replace(setting, timeout_seconds=rng.choice([10.0, 30.0, 90.0]))
    setting = _poisoned(rng, setting)
    if front_end.endswith("diloco"):
        algorithm = rng.choice(sorted(ALGORITHMS))
        chosen = ALGORITHMS[algorithm]
        setting = replace(setting, algorithm=algorithm, fragments=chosen.fragments, codec=chosen.codec)
        setting = replace(setting, statistics=rng.choice([0, 96]))
        if chosen.outlier_factor and not setting.flips:
            setting = replace(setting, outlier=(rng.randrange(replicas), rng.randrange(1, setting.rounds + 1)))
        if rng.random() < 0.3:
            setting = replace(setting, sizes=(2,))
        if rng.random() < 0.6:
            # Machines of different speeds: some phases end early.
            setting = replace(setting, paces=tuple(rng.choice([0.3, 1.0, 4.0]) for _ in range(replicas)))
    if setting.timeout_seconds == FOR_EVER and (setting.declines or setting.flips or setting.poisoned):
        # There may be no quorum without the unusable contribution: the processes then end, and are rerun.
        setting = replace(setting, timeout_seconds=30.0)
    events = _events(rng, setting)
    if front_end == "groups":
        # A rerun may have another number than the attempt before. In large models shards cross the processes' borders.
        setting = replace(setting, sizes=tuple(rng.choice([1, 2, 3, 4]) for _ in range(replicas)))
        setting = replace(setting, count=rng.choice([setting.count, setting.count, 4096]))
    if setting.sizes != (1,) and rng.random() < 0.7:
        step, rank = rng.randrange(0, rng.choice(STEPS)), rng.randrange(replicas)
        events.append(Event(step, rank, loses=rng.randrange(4)))
    if front_end == "torchft":
        events += _ends_after_commits(rng, setting)
    if front_end == "diloco":
        events += _ends_in_a_row(rng, setting)
    return Plan(setting, tuple(events))


def with_seats(rng: random.Random, plan: Plan) -> Plan:
    """The plan as an elastic run: ranks join, leave, come back, and are lost; so many stay that a round can be made.

    Sometimes all leave or are lost at once, and another rank joins afterwards.
    """
    start, fewest = rng.choice([1, 2, 2, 3, 4]), rng.choice([1, 1, 2])
    seats = start + rng.choice([1, 2, 4])
    share = rng.choice([0.5, 0.75, 0.75, 1.0, None])
    usable = {"poisoned": (), "declines": None, "flips": None, "outlier": None, "sizes": (1,)}
    paces = tuple(rng.choice([0.3, 1.0, 4.0]) for _ in range(seats)) if plan.setting.paces else ()
    setting = replace(plan.setting, **usable, paces=paces, replicas=seats, start=start, share=share)  # type: ignore[arg-type]
    setting = replace(setting, min_participants=min(fewest, start), rounds=rng.randrange(3, 8))
    step, steps = 0, rng.choice(STEPS)
    events: list[Event] = []
    stays = set(range(setting.min_participants))
    if setting.min_participants == 1 and rng.random() < 0.25:
        step, stays = rng.randrange(20, steps + 20), {seats - 1}
        closes = rng.random() < 0.5
        events += [Event(step, rank, not closes, closes=closes, counted=0) for rank in reversed(range(start))]
        events.append(Event(step + 1, seats - 1, starts=True, reruns=True, counted=0))
    if len(stays) == 2 and rng.random() < 0.4:
        # One of the two without whom there is no round leaves, and comes back.
        step = rng.randrange(steps)
        events.append(Event(step, 1, closes=True, counted=0))
        events.append(Event(step + rng.randrange(10, 60), 1, starts=True, reruns=True, counted=0))
    for _ in range(rng.choice([1, 2, 3, 4, 6])):
        step += rng.randrange(0, steps)
        rank, kind = rng.randrange(seats), rng.choice(["join", "join", "leave", "leave", "loss", "rerun", "stall"])
        if kind == "join":
            away = rng.choice([0.0, 0.0, 3.0, 15.0])
            events.append(Event(step, rank, starts=True, reruns=True, after_seconds=away, counted=min(stays)))
        elif kind == "rerun" and rank < start:
            events.append(Event(step, rank, kills=True, starts=True, reruns=rng.random() < 0.5))
        elif kind == "stall":
            events.append(Event(step, rank, stalls=rng.choice([3.0, 15.0, 90.0]), counted=min(stays)))
        elif rank not in stays and kind != "rerun":
            events.append(Event(step, rank, kind == "loss", closes=kind == "leave", counted=min(stays)))
    return Plan(setting, tuple(events))


def with_places(rng: random.Random, plan: Plan) -> Plan:
    """The plan over two or three places. Sometimes one is parted from the run's bucket, stalls as a whole, or dies."""
    setting = plan.setting
    places = rng.choice([PLACES[:2], PLACES, PLACES[1:]])
    where = tuple(rng.choice(places) for _ in range(setting.replicas))
    setting = replace(setting, where=where, moves=rng.random() < 0.2, latency_seconds=rng.choice([0.0, 0.15]))
    if setting.latency_seconds and setting.timeout_seconds < 30.0:
        # Whoever comes back after forty reruns of each rank first reads their claims, one after another.
        setting = replace(setting, timeout_seconds=30.0)
    if setting.poisoned and rng.random() < 0.5:
        near = tuple(f"{place}:{setting.poisoned[0]}" for place in places)
        setting = replace(setting, poisoned=near)
    events = list(plan.events)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        place, step, seconds = rng.choice(places), rng.randrange(rng.choice(STEPS)), rng.choice([3.0, 15.0, 90.0])
        ranks = [rank for rank in range(setting.replicas) if where[rank] == place]
        kind = rng.choice(["parted", "dark", "lost", "rerun"])
        if kind == "parted" and setting.start is None:
            events.append(Event(step, 0, parts=place, seconds=seconds))
        elif kind == "dark":
            events += [Event(step, rank, stalls=seconds, counted=0) for rank in ranks]
        elif ranks and (kind == "rerun" or setting.start is None):
            away = rng.choice([0.0, 15.0, 90.0])
            events += [
                Event(step, rank, kills=True, starts=True, reruns=True, after_seconds=away, counted=ranks[0])
                for rank in ranks
            ]
    return Plan(setting, tuple(events))


def _ends_in_a_row(rng: random.Random, setting: Setting) -> list[Event]:
    """Sometimes the processes of one rank are stopped or lost one after the other, perhaps in the same round."""
    if rng.random() < 0.6:
        return []
    events, rank, step = [], rng.randrange(setting.replicas), rng.randrange(20, rng.choice(STEPS))
    all_stop = rng.random() < 0.3  # some before their first step
    for _ in range(rng.choice([2, 2, 3, 4])):
        stops = all_stop or rng.random() < 0.5
        events.append(Event(step, rank, not stops, not stops, rng.random() < 0.5, stops=stops))
        step += rng.randrange(4, 20) if all_stop else rng.randrange(2, 60)
    return events


def _ends_after_commits(rng: random.Random, setting: Setting) -> list[Event]:
    """Sometimes all members of a round, or one member of the last, end before they have stored the state after it."""
    step, counted = rng.randrange(STEPS_AFTER_COMMIT), rng.randrange(setting.replicas)
    chance, reruns = rng.random(), rng.random() < 0.5
    if chance < 0.3:
        committed, stops = rng.randrange(1, setting.rounds + 1), rng.random() < 0.3
        return [
            Event(step, rank, not stops, not stops, reruns, counted=counted, stops=stops, committed=committed)
            for rank in range(setting.replicas)
        ]
    if chance < 0.5:
        return [Event(step, counted, kills=True, starts=True, reruns=reruns, committed=setting.rounds)]
    return []


def _poisoned(rng: random.Random, setting: Setting) -> Setting:
    """Sometimes objects of one kind are damaged in the bucket; or a pseudo-gradient has a NaN."""
    if setting.min_participants == 1 or rng.random() > 0.25:
        return setting
    round_, rank = rng.randrange(1, setting.rounds + 1), rng.randrange(setting.replicas)
    kind = rng.choice(["values", "values", "header", "declined", "shard", "shards", "snapshot", "bit"])
    if kind in {"values", "header", "declined"} and rng.random() < 0.25:
        # No quorum without the unusable contribution.
        setting = replace(setting, min_participants=setting.replicas)
    if kind == "declined":
        return replace(setting, declines=(rank, round_))
    if kind == "bit":
        return replace(setting, flips=(rank, round_))
    stored = max(round_ - round_ % setting.snapshot_rounds, setting.snapshot_rounds)
    where = {
        "values": rendezvous_keys.contribution(round_, rank, 1),
        "header": rendezvous_keys.contribution(round_, rank, 1),
        "shard": rendezvous_keys.reduced(round_, 0, rng.randrange(2)),
        "shards": f"{rendezvous_keys.REDUCED}*/{round_:08d}",
        "snapshot": f"{rendezvous_keys.SNAPSHOTS}{rng.randrange(2):05d}/{stored:08d}",
    }[kind]
    return replace(setting, poisoned=(where,), poisoned_at=40 if kind == "header" else 4200)


def _events(rng: random.Random, setting: Setting) -> list[Event]:
    """Up to three; so many ranks stay alive, or are replaced, that a quorum lives."""
    events: list[Event] = []
    dead: set[int] = set()
    kinds = ["rerun", "restart", "duplicate", "late rerun", "death", "stall", "sigterm", "cut off"]
    steps = rng.choice(STEPS)
    for step in sorted(rng.randrange(0, steps) for _ in range(rng.choice([0, 1, 1, 2, 3]))):
        rank, kind = rng.randrange(setting.replicas), rng.choice(kinds)
        if rank in dead or (kind == "death" and setting.replicas - len(dead) - 1 < setting.min_participants):
            continue
        if kind == "death":
            dead.add(rank)
        seconds = rng.choice([3.0, 15.0, 90.0])
        events.append(_event(kind, step, rank, seconds))
    return events


def _event(kind: str, step: int, rank: int, seconds: float) -> Event:
    if kind == "stall":
        return Event(step, rank, stalls=seconds)
    if kind == "sigterm":
        return Event(step, rank, stops=True)
    if kind == "cut off":
        return Event(step, rank, cuts_off=seconds)
    if kind == "late rerun":
        return Event(step, rank, kills=True, starts=True, reruns=True, after_seconds=seconds)
    return Event(step, rank, kind != "duplicate", kind != "death", kind in {"rerun", "duplicate"})
