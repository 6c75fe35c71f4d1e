"""A program of your own: every replica runs it by itself, and no data are exchanged between replicas.

Use it for what belongs to one machine, such as one setting of a search. To train one model with all replicas, write a
function instead: `muster init --kind function`.
"""

import argparse
import csv
import json
import os
import random
from pathlib import Path

FOLDERS = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))  # SageMaker's folders in the container
RANK = int(os.environ.get("MUSTER_RANK", "0"))  # the number of this replica, from 0


def main() -> None:
    """Fit a line by gradient descent, with a learning rate that depends on the rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=0.5)
    options = parser.parse_args()
    rate = options.learning_rate / (1 + RANK)
    points, slope, intercept = load(FOLDERS / "input" / "data" / "train"), 0.0, 0.0
    for _ in range(options.steps):
        errors = [(x, slope * x + intercept - y) for x, y in points]
        slope -= rate * sum(x * error for x, error in errors) / len(points)
        intercept -= rate * sum(error for _, error in errors) / len(points)
    loss = sum((slope * x + intercept - y) ** 2 for x, y in points) / len(points)
    print(f"rank={RANK} rate={rate:g} loss={loss:.6f}", flush=True)
    # SageMaker stores what is in this folder as model.tar.gz.
    (FOLDERS / "model").mkdir(parents=True, exist_ok=True)
    (FOLDERS / "model" / "line.json").write_text(json.dumps({"slope": slope, "intercept": intercept, "loss": loss}))


def load(folder: Path) -> list[tuple[float, float]]:
    """CSV files with two columns. Without a channel, made-up numbers."""
    if folder.is_dir():
        rows = [row for path in sorted(folder.glob("*.csv")) for row in csv.reader(path.open())]
        return [(float(x), float(y)) for x, y in rows]
    made = random.Random(0)
    return [(x / 32, 2 * x / 32 + 1 + made.gauss(0, 0.05)) for x in range(32)]


if __name__ == "__main__":
    main()
