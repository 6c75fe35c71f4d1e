"""`python -m tests.simulation.hunt DEFECT SCHEDULES`: the first schedule that finds a defect, and what it breaks.

A process of its own: the defect is put in before anything of the product is imported.
"""

import json
import sys

from tests.simulation.defects import put_in


def _hunt(schedules: int) -> tuple[int, str] | None:
    from tests.simulation.exploration import explored  # noqa: PLC0415 - after the defect

    for seed in range(schedules):
        # Whatever stops the simulation is found, too.
        try:
            violations = explored(seed).violations
        except Exception as error:
            return seed, f"{type(error).__name__}: {error}"
        if violations:
            return seed, violations[0][0]
    return None


if __name__ == "__main__":
    put_in(sys.argv[1])
    print(json.dumps(_hunt(int(sys.argv[2]))))
