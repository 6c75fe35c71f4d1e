"""A program that runs in the functions' bundle alone: it calls a handler, and prints the CPU seconds of each call.

Called with the name of a handler and, on standard input, a JSON list of events. It prints a JSON document.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

_SECONDS_LEFT = 300.0


def main(name: str, events: list[Any]) -> dict[str, list[Any]]:
    """`taken`: CPU seconds of the import, and of each call after it. `answers`: what each call answered."""
    began = time.process_time()
    handler = importlib.import_module(f"lambdas.{name}").handler
    taken = [time.process_time() - began]
    context = SimpleNamespace(
        function_name=name,
        memory_limit_in_mb=1_024,
        invoked_function_arn=f"arn:aws:lambda:us-east-1:123456789012:function:{name}",
        aws_request_id="1",
        get_remaining_time_in_millis=lambda: int(_SECONDS_LEFT * 1_000),
    )
    answers = []
    for event in events:
        began = time.process_time()
        answers.append(handler(event, context))
        taken.append(time.process_time() - began)
    return {"taken": taken, "answers": answers}


if __name__ == "__main__":
    output, sys.stdout = sys.stdout, sys.stderr  # the functions log to standard output
    print(json.dumps(main(sys.argv[1], json.load(sys.stdin))), file=output, flush=True)
