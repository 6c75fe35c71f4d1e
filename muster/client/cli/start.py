"""The entry point of the command `muster`: also what is interrupted while it is imported ends in silence."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from muster.client.cli import program  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(130)  # ExitCode.INTERRUPTED, whose module may not be imported yet
    program.main()
