"""One training of the GPT example with settings of a row: its replicas in one process, one after another.

What they exchange goes through the codecs, the error feedback and the outer optimizer that real replicas use. The order
of the data, of the sums and of the updates is theirs, too: without a shortage the losses are those of a run. Muon alone
makes its matrices orthogonal in float32 here, which a CPU multiplies several times as fast as torch's bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from unittest.mock import patch

import numpy as np
import torch

from examples.char_gpt.dataset import Windows, load, shard
from examples.char_gpt.learning import Learner, Settings
from muster.replica.algorithms.algorithm import Algorithm, norm_of
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.algorithms.radial import block_squares, straighten
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Codec
from muster.replica.kernel.calls import ONE
from muster.replica.parts.cut import Cut
from muster.replica.rounds.error_feedback import Residual
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Encoding, Floats, Records, encode_records
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.weighted_sum import WeightedSum

BATCH = 32  # windows of a step, over all replicas
STEPS = 1_500
WIDTHS = {"once": 64, "twice": 92}  # 112,384 and 223,652 parameters
HELD_OUT_WINDOWS = 2_048


@dataclass(frozen=True)
class Setting:
    """What a training is made with; data parallelism exchanges in every step.

    Attributes:
        size: of the model, see WIDTHS.
        optimizer: inside: adamw or muon.
        learning_rate: its own.
        replicas: N; 1 with the whole batch is data parallelism.
        sync_every: H.
        average: mean, or rda: norms and directions apart.
        outer: learning rate and momentum of the outer optimizer.
        feedback_decay, restart_rounds, final_learning_rate: as in `Algorithm`; the last one decays over all rounds.
    """

    size: str = "once"
    optimizer: str = "adamw"
    learning_rate: float = 4e-3
    replicas: int = 1
    sync_every: int = 0
    codec: str = "fp32"
    average: str = "mean"
    outer: tuple[float, float] = (1.0, 0.0)
    feedback_decay: float = 1.0
    restart_rounds: int = 0
    final_learning_rate: float | None = None
    seed: int = 0
    steps: int = STEPS

    @property
    def algorithm(self) -> Algorithm:
        """The settings of the run's rounds."""
        rate, momentum = self.outer
        ends = self.final_learning_rate
        return Algorithm(
            sync_every=self.sync_every,
            learning_rate=rate,
            momentum=momentum,
            average=self.average,
            codec=self.codec,
            feedback_decay=self.feedback_decay,
            restart_rounds=self.restart_rounds,
            decay_rounds=0 if ends is None else self.steps // self.sync_every,
            final_learning_rate=ends or 0.0,
        )

    @property
    def is_plain(self) -> bool:
        """Whether the model, the number of steps and the average are the usual ones."""
        return (self.size, self.average, self.steps) == ("once", "mean", STEPS)

    @property
    def bits(self) -> float:
        """Bits that a replica sends per parameter and round."""
        blocks = Blocks(2**22, codec_named(self.codec))
        return 8 * blocks.number * blocks.record_bytes / 2**22

    def document(self) -> dict[str, object]:
        """What is stored: what is not as usual, and what every row names."""
        usual = asdict(Setting())
        named = {"size", "optimizer", "learning_rate", "replicas", "seed"}
        return {name: value for name, value in asdict(self).items() if name in named or value != usual[name]}


def loss_of(setting: Setting) -> float:
    """The held-out loss of the final model, in nats per character."""
    learner = trained(setting)[0]
    windows = Windows(load()[1], learner.settings.length, seed=0)
    with torch.no_grad():
        parts = [learner.model.loss(*windows.batch(HELD_OUT_WINDOWS // 8)).item() for _ in range(8)]
    return float(np.mean(parts))


def trained(setting: Setting) -> list[Learner]:
    """The replicas with the final model."""
    torch.set_num_threads(1)
    text, held_out = load()
    learners = [_learner(setting, text, held_out, rank) for rank in range(setting.replicas)]
    with patch("torch.optim._muon._zeropower_via_newtonschulz", _orthogonalized):
        if setting.replicas == 1:
            for _ in range(setting.steps):
                learners[0].step()
        else:
            _train_together(setting, learners)
    return learners


def _orthogonalized(
    gradient: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> torch.Tensor:
    """Newton-Schulz's iteration with Muon's coefficients (https://kellerjordan.github.io/posts/muon/)."""
    a, b, c = coefficients
    is_tall = gradient.shape[0] > gradient.shape[1]
    x = gradient.T if is_tall else gradient
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def _learner(setting: Setting, text: torch.Tensor, held_out: torch.Tensor, rank: int) -> Learner:
    settings = Settings(
        width=WIDTHS[setting.size],
        batch_size=BATCH // setting.replicas,
        optimizer=setting.optimizer,
        learning_rate=setting.learning_rate,
        steps=setting.steps,
        seed=setting.seed,
    )
    own = shard(text, rank, setting.replicas)
    return Learner(settings, own, held_out, seed=rank + 1_000 * setting.seed)


def _train_together(setting: Setting, learners: Sequence[Learner]) -> None:
    """The rounds of a run in which every replica takes part in each."""
    start = _flat(learners[0])
    algorithm, cut = setting.algorithm, Cut(start.size)
    outer, state = algorithm.outer, GlobalState(0, start, np.zeros_like(start))
    codec = codec_named(setting.codec)
    feedback = [_Sender(codec, start.size, setting.feedback_decay) for _ in learners]
    for _ in range(setting.steps // setting.sync_every):
        given, norms = [], []
        for learner, sender in zip(learners, feedback, strict=True):
            _write(learner, state.parameters)
            for _ in range(setting.sync_every):
                learner.step()
            gradient = state.parameters - _flat(learner)
            norms.append(_norm(gradient))
            if algorithm.is_radial:
                straighten(gradient, norms[-1], gradient.size)
            given.append(sender.sent(gradient))
        mean = _mean(given)
        if not codec.needs_feedback:
            # Shards of the mean are encoded as well; replicas add up contributions of sparse codecs themselves.
            mean = _recoded(rendezvous_keys.reduced(state.round + 1, 0, 0), mean, codec)
        if algorithm.is_radial and (length := _norm(mean)):
            mean *= np.float32(np.mean(norms) / length)
        outer.apply(state, mean, cut)
    for learner in learners:
        _write(learner, state.parameters)


class _Sender:
    """A replica's codec and what that has lost so far."""

    def __init__(self, codec: Codec, count: int, decay: float) -> None:
        self._blocks = Blocks(count, codec)
        lost = np.zeros(count, np.float32)
        self._residual = Residual(lost, slice(0, count), np.empty_like(lost), None, decay) if codec.loses else None

    def sent(self, gradient: Floats) -> Floats:
        """The values that the others decode."""
        if self._residual is None:
            return gradient
        self._residual.lend()
        lost = self._residual.values
        records = Records("", self._blocks, range(self._blocks.number))
        encode_records(records, gradient, Encoding(self._blocks.codec, added=lost, error=lost, decoded=gradient))
        return gradient


def _mean(given: Sequence[Floats]) -> Floats:
    total, room = np.empty_like(given[0]), np.empty_like(given[0])
    added = WeightedSum(total, room, held=False, factor=np.float32(1 / len(given)), terms=len(given))
    for values in given:
        added.add(values, ONE)
    added.complete()
    return total


def _norm(values: Floats) -> float:
    return norm_of(block_squares(values, Blocks(values.size).elements))


def _recoded(key: str, mean: Floats, codec: Codec) -> Floats:
    if codec.loses:
        blocks = Blocks(mean.size, codec)
        records = Records(key, blocks, range(blocks.number))
        encode_records(records, mean, Encoding(codec, dither=True, decoded=mean))
    return mean


def _flat(learner: Learner) -> Floats:
    tensors = [tensor.detach().reshape(-1) for tensor in learner.model.parameters()]
    return torch.cat(tensors).numpy().copy()


def _write(learner: Learner, values: Floats) -> None:
    flat = torch.from_numpy(values)
    with torch.no_grad():
        start = 0
        for tensor in learner.model.parameters():
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()
