"""`wandb sync`, the folders must be offline runs. The program itself needs its service."""

import argparse
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Check one command."""
    parser = argparse.ArgumentParser(prog="wandb")
    parser.add_argument("verb", choices=["sync"])
    parser.add_argument("--append", action="store_true")
    parser.add_argument("folders", nargs="+", type=Path)
    asked = parser.parse_args(words)
    return 0 if all(list(folder.glob("run-*.wandb")) for folder in asked.folders) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
