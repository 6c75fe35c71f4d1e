"""The command line as a person drives it: keys pressed in a real terminal, the screen read, against the deployed stack.

One run goes through most commands: a run takes longer than all of them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.deployed import Deployed
from tests.support.jobs.resuming import EACH_ENDS_ALONE
from tests.support.terminal import Terminal

BIN = Path(sys.executable).parent
NARROW, WIDE = 60, 140


def environment(**own: str) -> dict[str, str]:
    """A shell without an account; the command on its PATH."""
    foreign = ("AWS_", "MUSTER_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"}
    return {**clean, **nothing, "PATH": f"{BIN}:{os.environ['PATH']}", **own}


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Gives what opens a terminal; all are closed at the end."""
    opened: list[Terminal] = []

    def open_one(shell: dict[str, str], columns: int = 100, rows: int = 40) -> Terminal:
        home = tmp_path / f"home{len(opened)}"
        home.mkdir()
        opened.append(Terminal(home, shell, columns, rows))
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


@pytest.fixture
def shell(stack: Deployed) -> dict[str, str]:
    """The environment of a shell that is turned towards the stack's cloud."""
    return stack.cloud.environment(environment())


def write_spec(terminal: Terminal, text: str) -> None:
    (terminal.home / "run.yaml").write_text(text, encoding="utf-8")


def test_a_run_from_its_spec_to_its_page(
    stack: Deployed, shell: dict[str, str], open_terminal: Callable[..., Terminal]
) -> None:
    one, narrow = open_terminal(shell), open_terminal(shell, NARROW, 10)
    gate = stack.gated("seen", replicas=5)
    write_spec(one, f"replicas: 5\nentrypoint: {gate['entrypoint']}\n")

    # A watch is a live table, no larger than the terminal; Ctrl-C leaves the run alone.
    one.start("muster launch run.yaml --name seen --watch")
    one.see(r"^ *4 +1  Training +–")
    narrow.start("muster status seen --watch")
    narrow.see(r"^and 2 more: 2 Training$")
    screen = narrow.text().splitlines()
    assert re.fullmatch(r"seen: running, \d+:\d\d, no round yet", screen[1])
    assert screen[2] == "rank  attempt  status        round  metrics       note"
    assert screen[3] == "   0        1  Training          –  –"
    assert len(screen) <= 10
    assert max(map(len, screen)) <= NARROW
    for terminal in (one, narrow):
        terminal.press("C-c")
        answer = terminal.answer()
        assert answer.code == 130
        assert "The run seen is still running. To stop it: `muster cancel seen`." in answer.text.replace("\n", "")
        assert "Traceback" not in answer.text

    # Its lines come merged, each rank in a colour of its own.
    one.start("muster logs seen -f --rank 0-1")
    one.see(r"^   0 \| waiting for seen")
    one.see(r"^   1 \| waiting for seen")
    coloured = one.text(styled=True)
    assert "\x1b[36m   0 | \x1b[39mwaiting for seen" in coloured
    assert "\x1b[32m   1 | \x1b[39mwaiting for seen" in coloured
    assert "   2 | " not in coloured
    one.press("C-c")
    assert one.answer()[0] == 130
    assert one.text().endswith("^C\nThe run seen is still running. To stop it: `muster cancel seen`.\n$")

    # The shell knows its name.
    assert one.run('eval "$(muster --show-completion bash)"').code == 0
    # It keeps nobody waiting who types: of a cloud that is slow to answer it knows no names, and one asks again.
    one.complete("muster status se", "muster status seen", tries=20)

    # A page that is served ends with the interrupt, and the run does not.
    one.start("muster ui seen")
    one.see(r"^seen: http://127\.0\.0\.1:\d+/ \(Ctrl-C stops serving the page; the run continues\)$")
    one.press("C-c")
    assert one.answer()[0] == 0
    assert one.run("muster status seen | head -1").text.endswith("no round yet")
    code, text = one.run("muster list --state running")
    assert (code, text.splitlines()[1].split()[:4]) == (0, ["run", "state", "started", "(UTC)"])
    assert re.search(r"^seen  running  20\d\d-\d\d-\d\d \d\d:\d\d +\d+:\d\d +5 +– +– +–$", text, re.MULTILINE)
    # Who waits for the cloud sees that; a file does not.
    one.wait_until("what was asked", lambda: "Asking for the runs …" in one.written())
    assert one.run("muster list 2>told | cat; wc -c <told").text.endswith("\n0")
    assert one.run("muster doctor") == (0, "muster doctor\nNo orphaned training jobs.")
    assert one.run("muster result seen").code == 2
    assert one.run("muster rerun seen").code == 2
    assert one.run("muster launch run.yaml --name seen")[0] == 0, "the same run, once more"

    assert one.run("muster cancel seen").text.endswith(
        "Cancelled seen: its jobs are being stopped. See `muster status seen`."
    )
    code, text = one.run("muster status seen --watch")
    assert code == 1
    assert re.search(r"^seen: stopped, \d+:\d\d, no round yet$", text, re.MULTILINE)
    assert "the execution was stopped" in text.splitlines()
    assert one.run("muster cancel seen").text.endswith("seen has ended already; there is nothing to cancel.")
    # Where room is short the note of a row goes before the numbers.
    code, text = narrow.run("muster status seen")
    assert code == 1
    assert "   0        1  Stopped           –  stopped-by-muster" in text.splitlines()
    code, text = one.run("muster result seen")
    assert code == 1
    assert "    attempt 1 Stopped: stopped-by-muster" in text.splitlines()
    code, text = one.run("muster events seen")
    assert re.search(r"^\S+Z  the run started with 5 replicas$", text, re.MULTILINE)
    assert re.search(r"^\S+Z  the execution was stopped", text, re.MULTILINE)
    assert one.run("muster report seen").text.endswith("Written to seen.html: open it in a browser.")
    page = (one.home / "seen.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "The run was stopped: the execution was stopped." in page
    code, text = one.run("muster report seen --out no/page.html")
    assert code == 2
    assert "muster: The page cannot be written to no/page.html: no such file or directory." in text


def test_a_run_that_fails_is_seen_in_colour_and_goes_on_as_another(
    stack: Deployed, shell: dict[str, str], open_terminal: Callable[..., Terminal]
) -> None:
    terminal, plain = open_terminal(shell, WIDE), open_terminal({**shell, "NO_COLOR": "1"}, WIDE)
    write_spec(
        terminal,
        "name: half\nreplicas: 2\ntrainer: tests.support.jobs.resuming:train\nkwargs: {rounds: 4, fail_after: 2}\n"
        + yaml.safe_dump(EACH_ENDS_ALONE),
    )
    code, text = terminal.run("muster launch run.yaml --watch")
    assert code == 1
    assert re.search(r"^ +0 +1  Failed +2  .*user-code$", text, re.MULTILINE), text
    assert "\x1b[31mhalf: failed" in terminal.text(styled=True)
    code, text = plain.run("muster status half")
    assert code == 1
    assert "half: failed" in text
    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", plain.text(styled=True)), "a colour in spite of NO_COLOR"
    assert plain.run("muster logs half --rank 1 --regex broken").text.splitlines()[1].startswith("   1 | ")
    assert terminal.run("muster rerun half --watch").code == 0
    assert re.search(
        r"^half-x2: succeeded, \d+:\d\d, round 4, [\d.,]+ samples/s, continues half$", terminal.text(), re.MULTILINE
    )


def test_faults_and_the_cloud_itself(
    stack: Deployed, shell: dict[str, str], open_terminal: Callable[..., Terminal]
) -> None:
    terminal = open_terminal(shell)
    (terminal.home / ".muster").symlink_to(stack.cloud.directory.root)
    assert terminal.run("muster faults list").text.endswith("No faults.")
    code, text = terminal.run("muster faults lost-instance nobody-r2-a1 --after-seconds 2")
    assert code == 0
    placed = re.search(r"^(\d+)  lost-instance  job=nobody-r2-a1 after_seconds=2.0  fired 0 of 1$", text, re.MULTILINE)
    assert placed
    assert placed[0] in terminal.run("muster faults list").text
    assert terminal.run("muster faults clear").text.endswith(f"Removed: {placed[1]}.")
    code, text = terminal.run("muster faults crash 'job' --count 0")
    assert code == 2
    assert "Traceback" not in text
    code, text = terminal.run("muster local status")
    assert code == 0
    assert re.search(r"^The embedded cloud runs at https://127\.0\.0\.1:\d+ \(process", text, re.MULTILINE)


def test_a_cloud_of_ones_own_from_up_to_down(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(environment())
    code, text = terminal.run("muster local status")
    assert (code, text.count("\n")) == (3, 2)
    assert "muster: No embedded cloud is running with its state in" in text
    code, text = terminal.run("muster local up --port 0")
    assert code == 0
    try:
        assert re.search(r"^The embedded cloud runs at https://127\.0\.0\.1:\d+ \(state in ", text, re.MULTILINE)
        assert terminal.run("muster local up --port 0").code == 3
        assert terminal.run('eval "$(muster local env)"; echo $AWS_ENDPOINT_URL').text.splitlines()[1][:18] in text
        # Turned towards a cloud on which nothing was deployed yet: one line says what is missing.
        code, text = terminal.run("muster list")
        assert code == 3
        assert text.replace("\n", "").startswith(
            "muster listmuster: There is no stack named Muster in us-east-1: deploy"
        )
        assert terminal.run("muster local exec -- printenv AWS_REGION").text.endswith("us-east-1")
    finally:
        code, text = terminal.run("muster local down")
    assert code == 0
    assert text.endswith("has stopped.")
    code, text = terminal.run("muster list")
    assert code == 3
    assert "start it with `muster local up`" in text.replace("\n", "")


def test_without_anything_every_command_says_what_is_missing(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(environment(), WIDE)
    terminal.start("muster init")
    for question, answer in (
        ("Kind", ""),
        ("Framework", "nump"),
        (r"Write one of numpy, .*\nFramework", "numpy"),
        ("Data", ""),
        ("Repl", ""),
    ):
        terminal.see(rf"^{question}.*: ?$")
        terminal.type(answer)
        terminal.press("Enter")
    code, text = terminal.answer()
    assert (code, "Wrote run.yaml, training.py." in text) == (0, True), text
    assert terminal.run("muster init --framework numpy").code == 2
    code, text = terminal.run("muster plan run.yaml")
    assert code == 0
    assert text.splitlines()[1] == "4 training jobs: muster-<run>-r0-a1 to muster-<run>-r3-a1."
    code, text = terminal.run("muster launch run.yaml --watch")
    assert code == 3
    assert text.splitlines()[1].startswith("muster: No usable AWS credentials: Unable to locate credentials. Log in")
    assert "Traceback" not in text
    write_spec(terminal, "replicas: 0\ntrainr: a:b\nvolume_gb: big\n")
    code, text = terminal.run("muster launch run.yaml")
    assert code == 2
    assert text.splitlines()[1] == "muster: The spec has 3 problems; nothing was created."
    assert [line.split(":")[0] for line in text.splitlines()[2:5]] == ["  - volume_gb", "  - replicas", "  - trainr"]
    code, text = terminal.run("muster status")
    assert code == 2
    assert "Missing argument 'RUN'." in text


def test_help_fits_a_narrow_terminal(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(environment(), NARROW)
    for command in ("muster --help", "muster launch --help", "muster local --help", "muster faults event --help"):
        code, text = terminal.run(command)
        assert code == 0
        # A box that is broken over the edge would leave its right side alone on a line.
        assert not [line for line in text.splitlines() if line.strip() in {"│", "╮", "╯"}], text
    assert terminal.run("muster").text.count("Show a run's status.") == 1


def test_bash_completes_commands_options_and_mounted_commands(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(environment())
    assert terminal.run('eval "$(muster --show-completion bash)"').code == 0
    terminal.complete("muster st", "muster status")
    terminal.complete("muster launch --wa", "muster launch --watch")
    terminal.complete("muster local st", "muster local status")
    terminal.complete("muster faults lost-i", "muster faults lost-instance")
    # Without a stack there is no name, and no word about it either.
    terminal.complete("muster status se", "muster status se")
