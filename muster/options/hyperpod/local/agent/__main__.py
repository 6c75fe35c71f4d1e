"""`hyperpodrun` of the embedded image."""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from muster.options.hyperpod.local.agent.arguments import parse
from muster.options.hyperpod.local.agent.elastic_agent import Agent, Terminated
from muster.options.hyperpod.local.agent.server import serve


def main() -> int:
    """Run the agent until the operator or a signal ends it."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
    arguments = parse(sys.argv[1:])
    if "NNODES" not in os.environ:
        sys.stderr.write("hyperpodrun: KeyError: 'NNODES': set it to the number of the job's pods\n")
        return 1

    def terminate(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    agent = Agent(arguments, Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")))
    server = serve(agent, arguments.server_host, arguments.server_port)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, terminate)
    try:
        return agent.run()
    except Terminated as end:
        sys.stderr.write(f"hyperpodrun: SignalException: Process {os.getpid()} got signal: {end.signal}\n")
        return 1
    finally:
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
