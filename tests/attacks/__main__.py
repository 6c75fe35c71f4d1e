"""Attack a stack in every class, and print how many attempts succeeded: 0 of all. Exit code 1 otherwise."""

import argparse
import sys
import time

from tests.attacks.attempts import Tally
from tests.attacks.classes import LONG, SHORT


def main() -> int:
    """Try the classes whose names contain a word, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("word", nargs="?", default="", help="try the classes whose names contain it")
    word = parser.parse_args().word
    chosen = {name: tries for name, tries in {**SHORT, **LONG}.items() if word in name}
    if not chosen:
        parser.error(f"no class has {word!r} in its name: {', '.join([*SHORT, *LONG])}")
    attacks = wrong = 0
    for name, tries in chosen.items():
        began = time.monotonic()
        tally = Tally(tries())
        attacks, wrong = attacks + tally.attacks, wrong + len(tally.wrong)
        print(f"{name:<36} {tally.attacks:>6,} attempts, {len(tally.wrong)} wrong, {time.monotonic() - began:5.1f} s")
        for what in tally.wrong[:20]:
            print(f"  {what}")
    print(f"{attacks:,} attempts in {len(chosen)} classes, {wrong} successes")
    return 1 if wrong or not attacks else 0


if __name__ == "__main__":
    sys.exit(main())
