"""The first minutes of a new user: the tutorial's commands from an empty machine to a trained model of one's own."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from bench.table import Row
from tests.support.newcomer import FIRST_MODEL, INSTALL, newcomer_shell
from tests.support.shown_pages import File, parts

_TIMEOUT_SECONDS = 900.0
_PAGE = "tutorial/your-code.md"
# `set -e`: the first command that fails ends it. Each line of output is a command's seconds.
_TIMED = "S=$(date +%s.%N); {command} >&2; echo $(date +%s.%N) $S | awk '{{print $1 - $2}}'"


def run() -> list[Row]:
    """What uv has downloaded for this user is used again; the CDK CLI and the functions' packages are fetched."""
    with tempfile.TemporaryDirectory() as folder:
        environment = newcomer_shell(Path(folder))
        home = Path(folder, "home")
        for part in parts(_PAGE):
            if isinstance(part, File):
                (home / part.path).parent.mkdir(parents=True, exist_ok=True)
                (home / part.path).write_text(part.text, encoding="utf-8")
        commands = [f"{command} --port 0" if command == "muster local up" else command for command in FIRST_MODEL]
        script = "\n".join(["set -e", *(_TIMED.format(command=command) for command in commands)])
        started = time.perf_counter()
        try:
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=home,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
                timeout=_TIMEOUT_SECONDS,
            )
        finally:
            subprocess.run(["muster", "local", "down"], cwd=home, env=environment, capture_output=True, check=False)
        seconds = time.perf_counter() - started
    by_command = dict(zip(FIRST_MODEL, map(float, done.stdout.split()), strict=True))
    set_up = sum(by_command[command] for command in (INSTALL, "muster deploy --target local"))
    return [
        Row("commands from an empty machine to a model of one's own", len(FIRST_MODEL), "commands", "<= 6"),
        Row("their time after set-up", (seconds - set_up) / 60, "minutes", "<= 3", note="without install and deploy"),
        Row("set-up: install and deploy", set_up / 60, "minutes"),
    ]
