"""Whether the files that an entrypoint names are in the source, and its `-m` modules too."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from muster.client.checks.check_findings import CheckFindings, place
from muster.client.checks.checked_program import Program
from muster.client.checks.python_modules import Missing, locate
from muster.contract.errors import Problem, StatedProblem

_PYTHON = ("python", "python3")
_SHELLS = ("sh", "bash")
# Options of the interpreter and of torchrun that take the next word; torchrun's may also be written with underscores.
_WITH_VALUE = {
    "-W", "-X", "-r", "-t", "--nnodes", "--nproc-per-node", "--node-rank", "--rdzv-backend", "--rdzv-endpoint",
    "--rdzv-id", "--rdzv-conf", "--max-restarts", "--monitor-interval", "--start-method", "--role", "--log-dir",
    "--redirects", "--tee", "--local-ranks-filter", "--master-addr", "--master-port", "--local-addr", "--config-file",
    "--num-processes",
}  # fmt: skip
# The next word is a command: `-c`, also among other options, as in `bash -lc`.
_COMMAND = re.compile(r"-[A-Za-z]*c")
_FILES = (".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")


def check_script(program: Program, root: Path) -> CheckFindings:
    """What is wrong with the entrypoint of `program`, which starts in the source at `root`."""
    words = program.words
    kind, operand = _operand(words)
    if kind == "module":
        return _check_module(operand, root)
    problem = _missing_script(operand, root) if kind == "script" else None
    if problem is not None:
        return CheckFindings((problem,))
    begin = words.index(operand) + 1 if operand in words else len(words)
    return CheckFindings(remarks=tuple(_remarks(words[begin:], root)))


def _operand(words: Sequence[str]) -> tuple[str, str]:
    """What the entrypoint runs: (`script`, its path), (`module`, its name), or (`other`, ``)."""
    program = words[0]
    name = PurePosixPath(program).name
    if "/" in program and not program.startswith("/"):
        return "script", program
    launches = name in _PYTHON or name == "torchrun" or name.startswith("python3.")
    if not launches and name not in _SHELLS:
        return "other", ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m" and launches:
            module = next(rest, "")
            # `python -m torch.distributed.run script.py` runs a script; what other modules run is their own affair.
            if module.split(".")[0] in {"torch", "accelerate"}:
                continue
            return "module", module
        if _COMMAND.fullmatch(word):
            return "other", ""
        if not word.startswith("-"):
            return "script", word
        if word.replace("_", "-") in _WITH_VALUE:
            next(rest, None)
    return "other", ""


def _missing_script(script: str, root: Path) -> Problem | None:
    if script.startswith("/") or "$" in script or _is_runnable(root / script):
        return None
    suffix = PurePosixPath(script).suffix
    if suffix not in {".py", ".sh"} and "/" not in script:
        return None  # a command of the image, such as accelerate's `launch`
    near = _nearest(script, root)
    remedy = f"did you mean {near}?" if near else "correct the path, which is relative to source_dir"
    return StatedProblem("entrypoint", f"there is no file {script} in {place(root)}", remedy)


def _is_runnable(path: Path) -> bool:
    """Whether it is a file, or a folder that Python runs. A path that cannot be looked at may be either."""
    try:
        return path.is_file() or (path / "__main__.py").is_file()
    except OSError:
        return True


def _check_module(module: str, root: Path) -> CheckFindings:
    located = locate(root, module) if module else None
    if not isinstance(located, Missing) or located.elsewhere:
        return CheckFindings()
    near = located.nearest()
    remedy = f"did you mean {near}?" if near else "correct the name, or add the module"
    statement = f"there is no module {module} in {place(root)}"
    return CheckFindings((StatedProblem("entrypoint", statement, remedy),))


def _remarks(words: Sequence[str], root: Path) -> list[str]:
    """Arguments that look like files of the source and are not there; the program may write them itself."""
    found = []
    for word in words:
        value = word.partition("=")[2] if word.startswith("-") else word
        looks = PurePosixPath(value).suffix in _FILES and not value.startswith("/") and "://" not in value
        if looks and not _exists(root / value) and (near := _nearest(value, root)) is not None:
            found.append(f"the arguments name {value}, which is not in {place(root)}; did you mean {near}?")
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True


def _nearest(path: str, root: Path) -> str | None:
    folder = (root / path).parent
    try:
        siblings = [item.name for item in folder.iterdir() if item.is_file()] if folder.is_dir() else []
    except OSError:
        siblings = []
    near = difflib.get_close_matches(PurePosixPath(path).name, siblings, n=1, cutoff=0.75)
    return (PurePosixPath(path).parent / near[0]).as_posix() if near else None
