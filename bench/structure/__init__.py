"""How the code is built, in counts: `python -m bench.structure`, or `--list METRIC` for the places behind one count.

Every count is a pure function of the sources. Each row has its aim and, in its note, what it was before Muster became
lighter. `METRICS` in `metrics.py` is the table of all counts.
"""

from __future__ import annotations

from bench.structure.metrics import run

__all__ = ["run"]
