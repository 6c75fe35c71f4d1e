"""How long a round takes and what it leaves of the time: against the replica's own sizes, and what was measured."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import moto.ec2
import numpy as np
import pytest
from pydantic import ValidationError

from muster.contract.aws.instance_types import NETWORK_GBPS
from muster.contract.run.forecast import ExchangeSettings
from muster.options.forecast.contract.codec_sizes import bits, rates
from muster.options.forecast.contract.round_time import (
    Exchange,
    Stage,
    Way,
    gathers,
    round_seconds,
    shards_of_mean,
    stages,
)
from muster.options.forecast.contract.utilisation import SYNC_EVERY_MAX, phase, proposal
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.rounds import all_gather
from muster.replica.wire.blocks import Blocks

MIB = 2**20
CODECS = ("fp32", "bf16", "fp16", "int8", "int4", "topk2-16", "topk2-64", "topk2-512")
GPT = Exchange(124e6, 8)


def of_mib(mib: float, replicas: int, codec: str = "fp32") -> Exchange:
    # Measured at a twentieth of the speed: processors do not count.
    return Exchange(mib * MIB / 4, replicas, codec, cores=20)


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_has_the_bytes_of_the_replicas(codec: str) -> None:
    found, values = codec_named(codec), 16 * 4096
    assert found.payload_bytes(values) * 8 / values == pytest.approx(bits(codec))
    for members in (2, 3, 8, 24, 64):
        mean = found.for_mean(members).payload_bytes(values) * 8 / values
        assert mean == pytest.approx(bits(codec, members), rel=1e-3)
    assert min(rates(codec)) > 0


def test_a_mean_has_the_shards_of_the_replicas() -> None:
    for count in (1_000, 300_000, 5_000_000, 17_000_000, 300_000_000):
        for members in (1, 2, 3, 8, 64):
            blocks = Blocks(count)
            found = shards_of_mean(blocks.number * blocks.record_bytes, members)
            assert min(found, blocks.number // members * members or found) == blocks.shards_of_mean(members)


@pytest.mark.parametrize("codec", CODECS)
def test_contributions_are_gathered_where_the_replicas_gather_them(codec: str) -> None:
    blocks = Blocks(5_000_000, codec_named(codec))
    for members in (1, 2, 3, 8, 16, 24, 32, 64):
        assert gathers(Exchange(5_000_000, members, codec)) == all_gather.gathers(blocks, members), members


def test_settings_are_those_of_the_algorithm() -> None:
    usual = Algorithm()
    for name, value in ExchangeSettings():
        assert (getattr(usual, name) or None) == (value or None), name
    refused: list[dict[str, object]] = [
        {"sync_every": 10, "fragments": 3},
        {"sync_every": 10, "delay": 10},
        {"sync_every": 10, "eager": True, "delay": 1},
        {"codec": "topk2-65"},
        {"far_codec": "topk2-64"},
    ]
    for fields in refused:
        with pytest.raises(ValidationError):
            ExchangeSettings.model_validate(fields)
    assert ExchangeSettings(far_codec=usual.far_codec) == ExchangeSettings()


@pytest.mark.parametrize(
    ("exchange", "measured"),
    [
        (of_mib(1, 8), 0.31),
        (of_mib(64, 8), 0.48),
        (of_mib(64, 4), 0.50),
        (of_mib(256, 4), 0.97),
        (of_mib(256, 4, "int4"), 0.42),
    ],
)
def test_rounds_over_a_store_as_slow_as_s3_take_as_long_as_measured(exchange: Exchange, measured: float) -> None:
    assert round_seconds(exchange) == pytest.approx(measured, rel=0.1)


def test_a_replica_moves_the_bytes_that_reduce_and_gather_needs() -> None:
    for number in (2, 8, 64):
        round_ = stages(replace(GPT, replicas=number))
        assert sum(stage.sent for stage in round_) == pytest.approx(GPT.plain * (1 + 1 / number))
        assert sum(stage.received for stage in round_) == pytest.approx(2 * GPT.plain * (number - 1) / number)


def test_a_place_moves_the_model_once_each_way_whatever_its_replicas_are() -> None:
    for shares in ((4, 4), (8, 8)):
        far = [stage for stage in stages(replace(GPT, replicas=sum(shares), places=shares)) if stage.far]
        assert [sum(stage.sent for stage in far), sum(stage.received for stage in far)] == [GPT.plain, GPT.plain]
    coded = [stage for stage in stages(replace(GPT, places=(4, 4), far_codec="int4")) if stage.far]
    assert sum(stage.sent for stage in coded) == pytest.approx(124e6 * 4.25 / 8)
    # Home, where the sums meet, has no member: three places make a third of the mean each.
    nobody = [stage for stage in stages(replace(GPT, replicas=12, places=(0, 4, 4, 4))) if stage.far]
    assert sum(stage.received for stage in nobody) == pytest.approx(GPT.plain * 4 / 3)


def test_a_slower_network_processor_or_link_makes_a_round_longer() -> None:
    usual = round_seconds(GPT)
    assert round_seconds(replace(GPT, way=Way(rate=0.75e9 / 8))) > 5 * usual
    assert round_seconds(replace(GPT, cores=0.1)) > usual
    assert round_seconds(replace(GPT, processes=8)) < usual
    assert round_seconds(replace(GPT, replicas=64)) > usual  # looks for 63 others take several turns
    placed = replace(GPT, places=(4, 4), far=Way((0.15, 0.15), rate=2.5e9 / 8))
    assert round_seconds(placed) > usual + 2 * 496e6 / (2.5e9 / 8)
    assert round_seconds(replace(placed, far=Way((0.3, 0.3), rate=2.5e9 / 8))) > round_seconds(placed) + 7 * 0.15


def test_what_runs_beside_the_training_is_not_waited_for() -> None:
    def blocked(**fields: object) -> float:
        return phase(GPT, ExchangeSettings.model_validate({"sync_every": 100, **fields}), 0.031).blocked_seconds

    exchange = phase(GPT, ExchangeSettings(sync_every=100), 0.031).exchange_seconds
    assert exchange < blocked() < exchange + 0.2
    assert blocked(delay=20) == pytest.approx(blocked() - 20 * 0.031)
    assert blocked(delay=99) < 0.15
    assert blocked(eager=True) < 0.6  # it starts from an estimate, which takes memory's time
    quarter = phase(GPT, ExchangeSettings(sync_every=100, fragments=4), 0.031)
    assert quarter.compute_seconds == pytest.approx(25 * 0.031)
    assert quarter.exchange_seconds < exchange / 2


@pytest.mark.parametrize("target", [0.5, 0.8, 0.95, 0.99])
def test_a_proposal_reaches_its_target_with_the_shortest_phase(target: float) -> None:
    found = proposal(GPT, ExchangeSettings(), 0.031, target)
    assert found is not None
    assert target <= found.utilisation
    assert found.settings.sync_every <= SYNC_EVERY_MAX
    Algorithm(**found.settings.model_dump(exclude_none=True))
    steps = found.settings.sync_every - 1
    shorter = found.settings.model_copy(update={"sync_every": steps, "delay": min(found.settings.delay, steps // 2)})
    assert phase(GPT, shorter, 0.031).utilisation < target


def test_a_proposal_changes_the_least() -> None:
    fast, long = replace(GPT, parameters=1e6), ExchangeSettings(sync_every=100, delay=3)
    found = proposal(fast, long, 0.031, 0.5)
    assert found is not None
    assert found.settings == long
    slow = replace(GPT, way=Way(rate=2.5e9 / 8))
    wanted = [proposal(slow, ExchangeSettings(sync_every=100), 0.031, share) for share in (0.5, 0.9, 0.97)]
    kinds = [None if one is None else (one.settings.codec, one.settings.delay > 0) for one in wanted]
    assert kinds == [("fp32", False), ("int4", False), ("fp32", True)]
    assert proposal(replace(GPT, way=Way(rate=1e5)), ExchangeSettings(), 0.031, 0.95) is None


def test_a_stage_waits_for_its_answers_and_for_the_slower_of_bytes_and_work() -> None:
    near = replace(GPT, way=Way((0.02, 0.02), 1e6, 1e9))
    assert Stage("", 3).seconds(near) == pytest.approx(0.06)
    assert Stage("", 1, received=2e6, requests=2).seconds(near) == pytest.approx(1.02)
    assert Stage("", 1, received=2e6, requests=2, work=5).seconds(near) == pytest.approx(5.02)
    assert Stage("", 1, requests=33).seconds(near) == pytest.approx(0.06)


def described() -> Iterator[tuple[str, float]]:
    packed = Path(moto.ec2.__file__).with_name("resources") / "instance_types.json.gz"
    for name, one in json.loads(gzip.decompress(packed.read_bytes())).items():
        cards = one["NetworkInfo"].get("NetworkCards") or [{}]
        yield f"ml.{name}", cards[0].get("BaselineBandwidthInGbps", np.nan)


def test_the_networks_are_those_that_ec2_describes() -> None:
    ec2 = dict(described())
    assert len(NETWORK_GBPS) > 200
    assert {name: gbps for name, gbps in NETWORK_GBPS.items() if ec2[name] != gbps} == {}
