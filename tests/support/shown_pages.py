"""A page of the documentation as its reader sees it: the files that it writes, and the commands with what they show."""

import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"
STAND_INS = ("aws", "docker", "wandb")
"""Programs that pages use and that tests do not install: `tests/support/stand_ins` has what stands for them."""
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FILE_OR_BLOCK = re.compile(
    r"`(?P<path>[\w./-]+)`:\n\n```(?!console)\w+\n(?P<text>.*?)^```|^```console\n(?P<block>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
# The stand-ins alone see the clone: what a page installs must not.
_STAND_IN = '#!/bin/sh\nexport PYTHONPATH={root}\nexec {python} -m tests.support.stand_ins.{name} "$@"\n'


class Step(NamedTuple):
    """A command, and what its page promises after it; … stands for anything."""

    command: str
    promised: str

    def shows(self, text: str) -> bool:
        """Whether `text` has what was promised."""
        pattern = ".*".join(re.escape(part) for part in self.promised.strip().split("…"))
        return re.search(pattern, text, re.DOTALL) is not None


def blocks(page: str) -> list[str]:
    """The console blocks of a page of docs/."""
    return _BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


class File(NamedTuple):
    """A file that the reader of a page writes: a name, a colon, and a block."""

    path: str
    text: str


def parts(page: str) -> list[Step | File]:
    """The files and the commands of a page, in order. A comment behind a command is none of its words."""
    found: list[Step | File] = []
    for match in _FILE_OR_BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        if match["path"] is not None:
            found.append(File(match["path"], match["text"]))
            continue
        for shown in re.split(r"^\$ ", match["block"], flags=re.MULTILINE)[1:]:
            line, _, rest = shown.partition("\n")
            while line.endswith("\\"):
                more, _, rest = rest.partition("\n")
                line = f"{line.removesuffix(chr(92)).rstrip()} {more.strip()}"
            found.append(Step(re.sub(r"\s{2,}#.*", "", line).strip(), rest.strip()))
    return found


def steps(page: str) -> list[Step]:
    """The commands of a page, in order."""
    return [part for part in parts(page) if isinstance(part, Step)]


def install_stand_ins(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with `STAND_INS` first on its PATH, as small programs in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in STAND_INS:
        program = folder / name
        program.write_text(_STAND_IN.format(root=DOCS.parent, python=sys.executable, name=name))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {**environment, "PATH": f"{folder}:{environment['PATH']}"}
