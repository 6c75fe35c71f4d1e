"""Plots the losses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from examples.char_gpt.report import Curve

# The first steps learn little but letter frequencies: the axis ends this far above the lowest loss, in nats.
HEIGHT = 1.25


def plot(curves: Mapping[str, Curve], path: Path) -> None:
    """Write held-out loss over inner steps as SVG, the curves in the order of their last losses."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in sorted(curves.items(), key=lambda item: item[1][-1][1], reverse=True):
        steps, losses = zip(*curve, strict=True)
        axes.plot(steps, losses, label=f"{losses[-1]:.3f}  {name}", linewidth=1.8, marker="o", markevery=[-1])
    lowest = min(loss for curve in curves.values() for _, loss in curve)
    axes.set_ylim(lowest - 0.05, lowest + HEIGHT)
    axes.set_xlim(left=0)
    axes.set_xlabel("inner steps of a replica")
    axes.set_ylabel("held-out loss (nats per character)")
    axes.legend(frameon=False, title="at the end", alignment="left")
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasSVG(figure).print_svg(path)  # type: ignore[no-untyped-call]
