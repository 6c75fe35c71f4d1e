"""torchft's lighthouse: `python -m bench.peers.lighthouse REPLICAS` answers each line with its address."""

from __future__ import annotations

import sys

from torchft.coordination import LighthouseServer

from bench.usage import answer_lines


def main(replicas: int) -> None:
    """Serve on loopback until standard input ends."""
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=replicas)
    port = server.address().rpartition(":")[2]  # it names the host, not what it is bound to
    answer_lines(lambda _: {"address": f"http://127.0.0.1:{port}"})


if __name__ == "__main__":
    main(int(sys.argv[1]))
