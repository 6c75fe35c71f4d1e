"""`docker build` and `docker push` as far as a page can get them wrong: the Dockerfile and the folder exist."""

import argparse
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Check one command."""
    parser = argparse.ArgumentParser(prog="docker")
    parser.add_argument("verb", choices=["build", "push"])
    parser.add_argument("place")
    parser.add_argument("--platform", choices=["linux/amd64"])
    parser.add_argument("-f", dest="file", type=Path)
    parser.add_argument("-t", dest="tag")
    asked = parser.parse_args(words)
    if asked.verb == "push":
        return 0
    file = asked.file or Path(asked.place) / "Dockerfile"
    return 0 if file.is_file() and Path(asked.place).is_dir() and asked.tag else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
