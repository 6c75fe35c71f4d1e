"""A real terminal: types keys as a user does, and reads the screen. Bash runs in a tmux server of its own."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self, TypeVar

from tests.support.shown_pages import File, parts
from tests.support.waiting import SECONDS, wait_until

T = TypeVar("T")

_sockets = itertools.count(1)
_PROMPT = "$ "
_PROMPT_LINE = re.compile(r"(\A|\n)(\(\S+\) )?\$\Z")  # that of a virtual environment, too


def shell_environment(**own: str) -> dict[str, str]:
    """A user's shell without an account and without wishes, with the command on its PATH; and with `own`."""
    foreign = ("AWS_", "MUSTER_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**clean, "PATH": f"{Path(sys.executable).parent}:{clean['PATH']}", **own}


class Answer(NamedTuple):
    """The outcome of a command: its exit code, and the text on the screen between its line and the next prompt."""

    code: int
    text: str


class Terminal:
    """A window of `columns` by `rows` characters; a context manager that ends its server, and no other.

    `environment` is all that the shell sees; `home` is its HOME, its working directory and the place of this class's
    own small files.
    """

    def __init__(self, home: Path, environment: Mapping[str, str], columns: int = 100, rows: int = 40) -> None:
        self.home = home
        self._ends = home / ".ends"
        self._ends.write_text("")
        start = home / ".start"
        # The exit code of each command goes to a file, so that the screen looks as it does for a user.
        start.write_text(f"PS1='{_PROMPT}'\nPROMPT_COMMAND='echo $? >>{self._ends}'\nset +o history\n")
        self._tmux = ["tmux", "-u", "-f", os.devnull, "-L", f"muster-{os.getpid()}-{next(_sockets)}"]
        shell = ["bash", "--noprofile", "--rcfile", str(start), "-i"]
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), *shell],
            env={**environment, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color"},
            cwd=home,
            check=True,
        )
        self._written = home / ".written"
        self._run("set-option", "-g", "history-limit", "20000")
        self._run("pipe-pane", f"cat >>{self._written}")
        self._before = 0
        self._wait_for_prompt()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell and what it runs, and the server."""
        socket = Path(self._run("display-message", "-p", "#{socket_path}").strip())
        self._run("kill-server")
        socket.unlink(missing_ok=True)

    def type(self, text: str) -> None:
        """Press the keys of `text`."""
        self._run("send-keys", "-l", text)

    def press(self, key: str) -> None:
        """Press one key by its name: Enter, Tab, C-c."""
        self._run("send-keys", key)

    def run(self, command: str, *, seconds: float = SECONDS) -> Answer:
        """Clear the screen, type a command, and wait until it ends."""
        self.start(command)
        return self.answer(seconds=seconds)

    def start(self, command: str) -> None:
        """Clear the screen, type a command, and return without waiting."""
        self._clear()
        self.type(command)
        self.press("Enter")

    def answer(self, *, seconds: float = SECONDS) -> Answer:
        """The outcome of the command that was started, once it has ended."""
        self._wait_for_prompt(seconds)
        code = int(self._ends.read_text().split()[-1])
        return Answer(code, _PROMPT_LINE.sub("", self.text()))

    def complete(self, typed: str, completed: str, *, tries: int = 1) -> None:
        """Type the beginning of a command and the Tab key; hold what then stands there, and throw it away."""
        for _ in range(tries):
            self._clear()
            self.type(typed)
            self.press("Tab")
            # What is typed ahead is shown once the completion is done.
            self.type("#")
            shown = self.see(r"^.*#$")[0]
            self.press("C-c")
            self._wait_for_prompt()
            if re.fullmatch(rf"{re.escape(completed)} ?#", shown):
                return
        message = f"{typed!r} became {shown!r}, not {completed!r}"
        raise AssertionError(message)

    def text(self, *, styled: bool = False) -> str:
        """All lines, scrolled out ones too, as they are broken on the screen; with `styled` also their colours."""
        lines = self._run("capture-pane", "-p", "-S", "-", *(["-e"] if styled else [])).split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip("\n")

    def written(self) -> str:
        """Everything that was ever written to the screen, including text that was erased."""
        return self._written.read_text(encoding="utf-8", errors="replace")

    def see(self, pattern: str, *, seconds: float = SECONDS) -> re.Match[str]:
        """Wait until the regular expression `pattern` is on the screen."""
        return self.wait_until(f"/{pattern}/", lambda: re.search(pattern, self.text(), re.MULTILINE), seconds=seconds)

    def wait_until(self, what: str, look: Callable[[], T | None], *, seconds: float = SECONDS) -> T:
        """The first answer of `look` that is true.

        Raises:
            AssertionError: none was in time; with the screen as it is then.
        """
        try:
            return wait_until(what, look, seconds=seconds)
        except AssertionError as error:
            message = f"{error}; the screen:\n{self.text()}"
            raise AssertionError(message) from None

    def _wait_for_prompt(self, seconds: float = SECONDS) -> None:
        """The shell first writes the exit code of the command that has ended, and then its prompt."""
        self.wait_until("the end of the command", lambda: self._count() > self._before, seconds=seconds)
        self.wait_until("the prompt", lambda: _PROMPT_LINE.search(self.text()))

    def _clear(self) -> None:
        self._run("send-keys", "-R")
        self._run("clear-history")
        self._before = self._count()

    def _count(self) -> int:
        return self._ends.read_text().count("\n")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout


def typed(page: str, terminal: Terminal, replaced: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Do what a page says, as its reader does in `terminal`, and hold what it shows; the commands.

    `replaced` has what is typed in place of some commands. A command fails where the page shows that it does.
    """
    commands = []
    for part in parts(page):
        if isinstance(part, File):
            path = terminal.home / part.path
            path.parent.mkdir(exist_ok=True)
            path.write_text(part.text, encoding="utf-8")
            continue
        answer = terminal.run(replaced.get(part.command, part.command), seconds=240)
        text = answer.text.partition("\n")[2]
        assert part.shows(text), f"{page}: {part.command}\n{text}"
        fails = part.promised.startswith("muster: ") or " failed, " in part.promised
        assert (answer.code != 0) == fails, f"{page}: {part.command}\n{text}"
        commands.append(part.command)
    return commands
