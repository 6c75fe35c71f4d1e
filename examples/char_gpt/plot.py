"""The losses as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from examples.char_gpt.baselines import Curve


def plot(curves: Mapping[str, Curve], path: Path) -> None:
    """Write held-out loss over inner steps as SVG."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, curve in curves.items():
        steps, losses = zip(*curve, strict=True)
        axes.plot(steps, losses, label=f"{name}: {losses[-1]:.3f}", marker=".", linewidth=1.5)
    axes.set_xlabel("inner steps of a replica")
    axes.set_ylabel("held-out loss (nats per character)")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasSVG(figure).print_svg(path)  # type: ignore[no-untyped-call]
