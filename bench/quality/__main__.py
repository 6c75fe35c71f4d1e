"""Fill the table of quality per byte: `python -m bench.quality --minutes 60 --workers 2`.

A training takes about a minute of a core. Stop it whenever you like: what is done is stored. `--lines` prints the rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from bench.quality.picture import draw
from bench.quality.table import lines, pending, store, stored
from bench.quality.training import Setting, loss_of


def main() -> int:
    """Train what is missing until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no training after so many")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--lines", action="store_true", help="print the table and train nothing")
    parser.add_argument(
        "--picture",
        action="store_true",
        help="draw the picture of the documentation, print the table, and train nothing",
    )
    options = parser.parse_args()
    losses = stored()
    if options.picture:
        draw(lines(losses))
    if not options.lines and not options.picture:
        _train(losses, options.minutes, options.workers)
    for line in lines(losses):
        spread = f"± {line.spread:.4f}" if len(line.losses) > 1 else "one seed"
        print(f"{line.mean:.4f} {spread:<8}  {line.setting.bits:6.3f} bits  {line.setting.document()}")
    return 0


def _train(losses: dict[Setting, float], minutes: float, workers: int) -> None:
    ends = time.monotonic() + 60 * minutes
    running: dict[Future[tuple[float, float]], Setting] = {}
    with ProcessPoolExecutor(workers) as pool:
        while True:
            if time.monotonic() < ends:
                wanted = (setting for setting in pending(losses) if setting not in running.values())
                for setting in list(islice(wanted, workers - len(running))):
                    running[pool.submit(_timed, setting)] = setting
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                setting = running.pop(done)
                losses[setting], seconds = done.result()
                store(setting, losses[setting], seconds)
                print(f"{losses[setting]:.4f}  {seconds:5.0f} s  {setting.document()}", flush=True)


def _timed(setting: Setting) -> tuple[float, float]:
    began = time.process_time()
    return loss_of(setting), time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
