"""The rows of `python -m bench quality`: the stored table's, and short trainings with the present code."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from bench.char_gpt import OURS
from bench.quality.table import LONG_STEPS, Line, best_settings, lines, stored
from bench.quality.training import BATCH, STEPS, Setting, loss_of, trained
from bench.replicas import Training, metrics_of
from bench.table import Row
from examples.char_gpt.learning import Settings

SHORT_STEPS = 300
BITS_MAX = 0.3
_ALONE = "data parallelism"


def run() -> list[Row]:
    """Takes some minutes; the table itself, `python -m bench.quality`, takes hours."""
    losses = stored()
    return [*_of_table(lines(losses)), *_short(best_settings(losses))]


def _of_table(table: list[Line]) -> list[Row]:
    """What the issue of the best model per byte asks of the table."""
    seeds = sum(len(line.losses) for line in table)
    return [
        *_of_length([line for line in table if line.setting.is_plain], f"{STEPS:,} steps"),
        *_of_length([line for line in table if line.setting.steps == LONG_STEPS], f"{LONG_STEPS:,} steps"),
        Row("rows of the table", len(table), "", note=f"{seeds} trainings; bench/quality/results.jsonl"),
    ]


def _of_length(table: list[Line], length: str) -> list[Row]:
    rows = []
    alone = {line.setting.optimizer: line for line in table if line.setting.replicas == 1}
    four = [line for line in table if (line.setting.replicas, line.setting.sync_every) == (4, 30)]
    cheap = [line for line in four if line.setting.bits <= BITS_MAX and line.setting.optimizer in alone]
    if cheap:
        best = min(cheap, key=lambda line: line.mean / alone[line.setting.optimizer].mean)
        name = f"{best.setting.optimizer}, {best.setting.codec}, {best.setting.bits:.2f} bits a value and round"
        ratio = best.mean / alone[best.setting.optimizer].mean
        rows.append(Row(f"{length}: cheapest replicas' loss / data parallelism's", ratio, "", "<= 1.01", note=name))
    by_codec = {(line.setting.optimizer, line.setting.codec): line for line in four}
    for codec, aim in (("int4", "<= 1.002"), ("topk2-64", "<= 1.005")):
        ratios = [
            line.mean / dense.mean
            for (optimizer, name), line in by_codec.items()
            if name == codec and (dense := by_codec.get((optimizer, "fp32")))
        ]
        if ratios:
            note = "the worse of the inner optimizers"
            rows.append(Row(f"{length}: {codec} loss / fp32's", max(ratios), "", aim, note=note))
    return rows


def _short(settings: list[Setting]) -> list[Row]:
    """Of so few steps that their losses say nothing of a long run: they show what a change of the code does."""
    by_name = {f"{each.optimizer} {each.codec if each.replicas > 1 else _ALONE}": each for each in settings}
    found = {name: loss_of(replace(each, steps=SHORT_STEPS)) for name, each in by_name.items()}
    note = f"{SHORT_STEPS} steps, N = 4, H = 30"
    rows = [Row(f"short: {name}", loss, "nats", note=note) for name, loss in found.items()]
    coded = Setting(replicas=4, sync_every=30, codec="int4", average="rda", outer=(0.7, 0.8), steps=90)
    sparse = replace(coded, codec="topk2-128", average="mean", outer=(0.7, 0.5))
    return [*rows, _as_real_replicas(coded), _as_real_replicas(sparse)]


def _as_real_replicas(setting: Setting) -> Row:
    """Whether the replicas of a run come to the loss that the table's have."""
    own = Settings(batch_size=BATCH // setting.replicas, steps=setting.steps)
    kwargs = {"batch_size": own.batch_size, "steps": own.steps, "sync_every": setting.sync_every}
    rate, momentum = setting.outer
    outer = {"outer_learning_rate": rate, "outer_momentum": momentum}
    given = {**kwargs, **outer, "codec": setting.codec, "average": setting.average}
    printed = metrics_of(Training(OURS, given, (1,) * setting.replicas).printed())
    real = fmean(float(line["heldout"]) for line in printed if line.get("final") == "1")
    far = abs(real / trained(setting)[0].held_out_loss() - 1)
    name = f"real replicas' loss, off the table's way: {setting.codec}, {setting.average}"
    return Row(name, far, "", "<= 0.00001", note=f"{setting.steps // setting.sync_every} rounds; printed digits")
