"""How long a round takes over its links: stages that follow one another, each with its answers, bytes and work. Pure.

A topology is a function that gives a round's stages from the first look to the mean; `stages` chooses one.
`bench/forecast.py` compares what follows from them with what trains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf

from muster.options.forecast.contract.codec_sizes import bits, rates

_MIB = 2**20
_CONNECTIONS = 16  # of a process; this and the sizes of parts and shards are the replica's (`wire/blocks.py`)
_PARTS_FROM = 16 * _MIB
_SHARD_MIN, _SHARD_FILLED, _SHARD_AIM = _MIB // 4, 2 * _MIB, 16 * _MIB
_POLL_LATE = 1 / 8  # of a wait: a look in vain is repeated after a quarter of it
_LOOKS_IN_VAIN = 2  # for shards that others still make
_FAR_ANSWERS = 7.25  # one after another over the long way (`python -m bench places`)
_FAR_HANDOVERS = 3  # the commit, the sums, the mean: each is looked for
_APPLIED = 3e9  # bytes of parameters a second that the outer step takes, on one core


@dataclass(frozen=True)
class Way:
    """A way to a bucket, if nothing else is said to S3 as docs/performance.md has it.

    Attributes:
        first_byte: seconds from a request to its answer's first byte: from, to.
        connection_rate, rate: bytes a second of a connection, and of all in each direction.
    """

    first_byte: tuple[float, float] = (0.010, 0.030)
    connection_rate: float = 87e6
    rate: float = inf

    def wait(self, beside: float) -> float:
        """Seconds until the last of so many answers that are waited for at the same time."""
        low, high = self.first_byte
        return low + (high - low) * beside / (beside + 1)

    def carry(self, size: float, at_once: float) -> float:
        """Seconds for bytes over so many connections."""
        return max(size / (at_once * self.connection_rate), size / self.rate)


@dataclass(frozen=True)
class Exchange:
    """One exchange of a run.

    Attributes:
        processes: of a replica, each with its part and its connections.
        places: how many replicas each place has, home first; (): all are at home.
        way, far: from a replica to the bucket where it trains, and from there to the one at home.
        cores: so many times as fast as the one of the codecs' rates are those that a process has for the exchange.
    """

    parameters: float
    replicas: int
    codec: str = "fp32"
    far_codec: str | None = None
    processes: int = 1
    places: tuple[int, ...] = ()
    way: Way = field(default_factory=Way)
    far: Way = field(default_factory=Way)
    cores: float = 1.0

    @property
    def plain(self) -> float:
        """Bytes of the parameters as float32."""
        return 4 * self.parameters

    @property
    def given(self) -> float:
        """Bytes of a contribution."""
        return bits(self.codec) / 8 * self.parameters

    @property
    def mean(self) -> float:
        """Bytes of the mean."""
        return bits(self.codec, self.replicas) / 8 * self.parameters

    @property
    def threads(self) -> float:
        """The cores of all processes of a replica."""
        return self.cores * self.processes


@dataclass(frozen=True)
class Stage:
    """What a replica does before the next stage can begin.

    Attributes:
        answers: that it waits for, one after another.
        sent, received: bytes of the replica; of a stage that is `far`, of its place. They move at the same time.
        requests: that carry them, side by side.
        work: seconds of the processor, while the bytes move.
        before: seconds before any byte moves.
    """

    what: str
    answers: float
    sent: float = 0.0
    received: float = 0.0
    requests: int = 1
    work: float = 0.0
    before: float = 0.0
    far: bool = False

    def seconds(self, exchange: Exchange) -> float:
        """How long it takes."""
        way, most = exchange.far if self.far else exchange.way, _CONNECTIONS * exchange.processes
        answers = self.answers + ceil(self.requests / most) - 1
        moved = way.carry(max(self.sent, self.received), min(self.requests, most))
        wait = way.wait(exchange.replicas * min(self.requests, _CONNECTIONS))
        return answers * wait + max(moved, self.work) + self.before


def shards_of_mean(size: float, members: int) -> int:
    """Into how many shards a mean is divided (`Blocks.shards_of_mean`); `size`: of a contribution."""
    least = max(1, min(members, int(size // _SHARD_MIN)))
    each = size / least
    return least * max(1, min(-(-_CONNECTIONS // least), int(each // _SHARD_FILLED)), round(each / _SHARD_AIM))


def contribution(exchange: Exchange) -> Stage:
    """Encode and store it."""
    is_large = exchange.given / exchange.processes >= _PARTS_FROM
    requests = exchange.processes * (_CONNECTIONS if is_large else 1)
    encode = exchange.plain / (rates(exchange.codec).encode * exchange.threads)
    return Stage("contribute", 3 if is_large else 1, sent=exchange.given, requests=requests, before=encode)


def agreement(exchange: Exchange) -> list[Stage]:
    """From the first look to the commit that all have read."""
    return [
        Stage("look for a commit", 1, requests=2),
        contribution(exchange),
        Stage("look for the others", 1, requests=2 * exchange.replicas),
        Stage("commit", 1),
        Stage("read the commit", 1 + _POLL_LATE),
    ]


def reduce_and_gather(exchange: Exchange) -> list[Stage]:
    """Each replica makes its shards of the mean from all contributions, and reads the other shards."""
    number, speed = exchange.replicas, rates(exchange.codec)
    shards, part = shards_of_mean(exchange.given, number), exchange.plain / number / exchange.threads
    own = max(1, shards // number)
    sent, received = exchange.mean / number, exchange.given * (number - 1) / number
    work = part * (number - 1) / speed.decode
    makes = Stage("make shards", 2, sent, received, max(1, own * (number - 1)), work + part / speed.mean)
    received = exchange.mean * (number - 1) / number
    reads = Stage("read shards", 1 + _LOOKS_IN_VAIN, 0, received, max(1, shards - own), work)
    return [*agreement(exchange), makes, reads]


def gathers(exchange: Exchange) -> bool:
    """Whether each replica averages all contributions itself, as it moves fewer bytes so (`all_gather.gathers`)."""
    number, given, mean = exchange.replicas, exchange.given, exchange.mean
    return mean != given and given * number * max(2, number) < given * (2 * number - 1) + mean * number


def gather_all(exchange: Exchange) -> list[Stage]:
    """Each replica reads all contributions, averages them, and looks whether all others can use them, too."""
    others = exchange.replicas - 1
    work = exchange.plain * others / exchange.threads / rates(exchange.codec).decode
    requests = others * shards_of_mean(exchange.given, exchange.replicas)
    reads = Stage("read the contributions", 1, 0, exchange.given * others, max(1, requests), work)
    return [*agreement(exchange), reads, Stage("agree that they can be used", 1 + _LOOKS_IN_VAIN, requests=2)]


def over_places(exchange: Exchange) -> list[Stage]:
    """Each place sends its sum home and reads the mean there, once; in the place, replicas share both."""
    number, home = sum(map(bool, exchange.places)), exchange.places[0]
    members = max(1, exchange.replicas // number)
    up = exchange.mean if exchange.far_codec is None else bits(exchange.far_codec) / 8 * exchange.parameters
    down = up if home else up * 2 * (number - 1) / number
    shared, all_ = (members - 1) / members, _CONNECTIONS
    # A hand-over is noticed late, unless bytes are on their way meanwhile.
    late = _POLL_LATE * _FAR_HANDOVERS * _FAR_ANSWERS * exchange.far.wait(1) - exchange.far.carry(up + down, all_)
    return [
        contribution(exchange),
        Stage("agree, wait for a sum and a shard", _FAR_ANSWERS, before=max(0.0, late), far=True),
        Stage("make the place's sum", 2, received=exchange.given * shared, requests=all_),
        Stage("send it home", 0, sent=up, requests=all_, far=True),
        Stage("make the mean", 2, received=up * (number - 1) / max(1, home), requests=all_),
        Stage("read it from home", 0, received=down, requests=all_, far=True),
        Stage("read the place's copy", 1, received=up * shared, requests=all_),
    ]


def stages(exchange: Exchange) -> list[Stage]:
    """Those of a round, in their order."""
    topology = gather_all if gathers(exchange) else reduce_and_gather
    topology = over_places if len(exchange.places) > 1 else topology
    return [*topology(exchange), Stage("apply", 0, before=exchange.plain / (_APPLIED * exchange.threads))]


def round_seconds(exchange: Exchange) -> float:
    """How long a round takes when all contribute at the same time."""
    return sum(stage.seconds(exchange) for stage in stages(exchange))
