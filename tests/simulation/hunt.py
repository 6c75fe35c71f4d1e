"""`python -m tests.simulation.hunt DEFECT`: how many schedules it takes until an invariant breaks.

A process of its own: the defect is put in before anything of the product is imported.
"""

from __future__ import annotations

import json
import sys

from tests.simulation.defects import put_in


def main(name: str, schedules: int) -> int:
    """Print the number of schedules, and the invariant that broke; null where none did."""
    put_in(name)
    from tests.simulation.shrinking import explored  # noqa: PLC0415 - after the defect

    for seed in range(schedules):
        # Whatever stops the simulation is found, too.
        try:
            violations = explored(seed).violations
        except Exception as error:
            violations = [("error", f"{type(error).__name__}: {error}")]
        if violations:
            invariant, what = violations[0]
            print(json.dumps({"schedules": seed + 1, "invariant": invariant, "what": what}))
            return 0
    print(json.dumps({"schedules": schedules, "invariant": None, "what": ""}))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
