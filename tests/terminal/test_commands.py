"""The command line as a person drives it: keys pressed in a real terminal, the screen read, against the deployed stack.

What the commands say is held by tests/unit/client and tests/e2e; here is what only a terminal shows.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.support.deployed import Deployed
from tests.support.terminal import Terminal, shell_environment

NARROW = 60
_names = itertools.count(1)


def environment() -> dict[str, str]:
    """A shell without an account."""
    nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"}
    return shell_environment(**nothing)


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Gives what opens a terminal; all are closed at the end."""
    with ExitStack() as opened:

        def open_one(shell: dict[str, str], columns: int = 100, rows: int = 40) -> Terminal:
            home = Path(mkdtemp(dir=tmp_path))
            return opened.enter_context(Terminal(home, shell, columns, rows))

        yield open_one


def test_a_run_from_its_spec_to_its_page(stack: Deployed, open_terminal: Callable[..., Terminal]) -> None:
    shell = stack.cloud.environment(environment())
    one, narrow = open_terminal(shell), open_terminal({**shell, "NO_COLOR": "1"}, NARROW, 10)
    name = f"seen-{next(_names)}"
    entrypoint = stack.gated(name, replicas=5)["entrypoint"]
    (one.home / "run.yaml").write_text(f"replicas: 5\nentrypoint: {entrypoint}\n", encoding="utf-8")

    # A watch is a live table, no larger than the terminal; Ctrl-C leaves the run alone.
    one.start(f"muster launch run.yaml --name {name} --watch")
    one.see(r"^ *4 +1  Training +–")
    narrow.start(f"muster status {name} --watch")
    narrow.see(r"^and 2 more: 2 Training$")
    screen = narrow.text().splitlines()
    assert re.fullmatch(rf"{name}: running, \d+:\d\d, no round yet", screen[1])
    assert screen[2] == "rank  attempt  status        round  metrics       note"
    assert screen[3] == "   0        1  Training          –  –"
    assert len(screen) <= 10
    assert max(map(len, screen)) <= NARROW
    for terminal in (one, narrow):
        terminal.press("C-c")
        answer = terminal.answer()
        assert answer.code == 130
        # A narrow terminal breaks the line between two words.
        assert f"The run {name} is still running. To stop it: `muster cancel {name}`." in " ".join(answer.text.split())
        assert "Traceback" not in answer.text

    # Its lines come merged, each rank in a colour of its own.
    one.start(f"muster logs {name} -f --rank 0-1")
    one.see(rf"^   0 \| waiting for {name}")
    one.see(rf"^   1 \| waiting for {name}")
    coloured = one.text(styled=True)
    assert f"\x1b[36m   0 | \x1b[39mwaiting for {name}" in coloured
    assert f"\x1b[32m   1 | \x1b[39mwaiting for {name}" in coloured
    assert "   2 | " not in coloured
    one.press("C-c")
    assert one.answer()[0] == 130
    assert one.text().endswith(f"^C\nThe run {name} is still running. To stop it: `muster cancel {name}`.\n$")

    # The shell knows its name.
    assert one.run('eval "$(muster --show-completion bash)"').code == 0
    # It keeps nobody waiting who types: of a cloud that is slow to answer it knows no names, and one asks again.
    one.complete(f"muster status {name[:2]}", f"muster status {name}", tries=20)

    # A page that is served ends with the interrupt, and the run does not.
    one.start(f"muster ui {name}")
    one.see(rf"^{name}: http://127\.0\.0\.1:\d+/[\w-]+/\nCtrl-C stops serving the page; the run continues\.$")
    one.press("C-c")
    assert one.answer()[0] == 0
    code, text = one.run("muster list --state running")
    assert (code, text.splitlines()[1].split()[:4]) == (0, ["run", "state", "started", "(UTC)"])
    # Who waits for the cloud sees that; a file does not.
    one.wait_until("what was asked", lambda: "Asking for the runs …" in one.written())
    assert one.run("muster list 2>told | cat; wc -c <told").text.endswith("\n0")

    assert one.run(f"muster cancel {name}").code == 0
    code, text = one.run(f"muster status {name} --watch")
    assert code == 1
    assert re.search(rf"^{name}: stopped, \d+:\d\d, no round yet$", text, re.MULTILINE)
    assert f"\x1b[33m{name}: stopped" in one.text(styled=True)
    # Where room is short the note of a row goes before the numbers.
    text = narrow.run(f"muster status {name}").text
    assert "   0        1  Stopped           –  stopped-by-muster" in text.splitlines()
    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", narrow.text(styled=True)), "a colour in spite of NO_COLOR"


def test_a_shell_without_a_cloud_asks_helps_and_completes(open_terminal: Callable[..., Terminal]) -> None:
    terminal, narrow = open_terminal(environment()), open_terminal(environment(), NARROW)
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
    code, text = terminal.run("muster launch run.yaml --watch")
    assert (code, "Traceback" in text) == (3, False)
    assert text.splitlines()[1].startswith("muster: No usable AWS credentials: ")
    for command in ("muster --help", "muster launch --help", "muster faults event --help"):
        code, text = narrow.run(command)
        assert code == 0
        # A box that is broken over the edge would leave its right side alone on a line.
        assert not [line for line in text.splitlines() if line.strip() in {"│", "╮", "╯"}], text
    assert terminal.run('eval "$(muster --show-completion bash)"').code == 0
    terminal.complete("muster st", "muster status")
    terminal.complete("muster launch --wa", "muster launch --watch")
    terminal.complete("muster faults lost-i", "muster faults lost-instance")
    # Without a stack there is no name, and no word about it either.
    terminal.complete("muster status se", "muster status se")
