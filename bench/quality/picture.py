"""The picture of the documentation: loss against bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bench.quality.table import Line

PICTURE = Path("docs/quality.svg")
_MARKERS = {"fp32": "o", "int4": "s", "topk2-64": "^", "topk2-128": "v"}
_COLOURS = {"adamw": "#4c72b0", "muon": "#dd8452"}
_LOSS_MAX = 2.3  # above are sparse codecs in three rounds, which have learnt next to nothing
_NAMES = {"adamw": "AdamW", "muon": "Muon"}


def bytes_sent(line: Line) -> float:
    """What a replica sends in the whole training, in bytes per parameter."""
    return line.setting.bits / 8 * line.setting.steps / (line.setting.sync_every or 1)


def frontier(lines: Sequence[Line]) -> list[Line]:
    """Those that no other one beats in bytes and in loss, by bytes."""
    best: list[Line] = []
    for line in sorted(lines, key=lambda line: (bytes_sent(line), line.mean)):
        if not best or line.mean < best[-1].mean:
            best.append(line)
    return best


def draw(lines: Sequence[Line], path: Path = PICTURE) -> None:
    """The losses of four replicas and of data parallelism, by what a replica sends."""
    plain = [line for line in lines if line.setting.is_plain]
    together = [line for line in plain if line.setting.replicas == 4]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    labelled = set()
    for line in together:
        setting = line.setting
        name = f"{_NAMES[setting.optimizer]}, {setting.codec}"
        axes.errorbar(
            bytes_sent(line),
            line.mean,
            yerr=line.spread,
            marker=_MARKERS[setting.codec],
            color=_COLOURS[setting.optimizer],
            linestyle="",
            label=None if name in labelled else name,
        )
        axes.annotate(f" {setting.sync_every}", (bytes_sent(line), line.mean), fontsize=7, va="bottom")
        labelled.add(name)
    best = frontier(together)
    axes.plot(
        [bytes_sent(line) for line in best], [line.mean for line in best], color="#555555", linewidth=0.8, zorder=0
    )
    for line in plain:
        if line.setting.replicas == 1:
            name = f"data parallelism, {_NAMES[line.setting.optimizer]}: {bytes_sent(line):,.0f} bytes"
            axes.axhline(line.mean, color=_COLOURS[line.setting.optimizer], linestyle="--", linewidth=1, label=name)
    axes.set_xscale("log")
    axes.set_ylim(top=_LOSS_MAX)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(
        "bytes that a replica sends per parameter, in the whole training (numbers: inner steps per exchange)"
    )
    axes.set_ylabel("held-out loss (nats per character)")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    FigureCanvasSVG(figure).print_svg(path)  # type: ignore[no-untyped-call]
