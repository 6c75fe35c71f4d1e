"""Whether a trainer is where a spec says, and can be called as it says. Its source is read, and nothing is run."""

from __future__ import annotations

import difflib
from pathlib import Path

from muster.client.checks.call_check import call_problems
from muster.client.checks.check_findings import CheckFindings, place
from muster.client.checks.checked_program import Program
from muster.client.checks.python_modules import Missing, is_installed, locate
from muster.client.checks.python_names import (
    NoSuchName,
    UnreadableSourceError,
    names_of,
    resolve,
)
from muster.client.launch.ignore import IGNORE_FILE, Ignored
from muster.contract.errors import Problem, StatedProblem


def check_trainer(program: Program, root: Path) -> CheckFindings:
    """What is wrong with the trainer of `program` in the source at `root`. Without certainty nothing is wrong."""
    module = program.module or ""
    located = locate(root, module)
    try:
        if isinstance(located, Missing):
            return _check_missing(program, root, located)
        if located is None:
            return CheckFindings()
        if Ignored.of(root).leaves_out(located.relative_to(root)):
            statement = f"{IGNORE_FILE} leaves {place(located)} out of the source"
            return CheckFindings((StatedProblem("trainer", statement, f"add a line to {IGNORE_FILE} that keeps it"),))
        found = resolve(root, module, program.function)
        if isinstance(found, NoSuchName):
            return CheckFindings((_no_function(found),))
        return CheckFindings(tuple(call_problems(program, found)) if found is not None else ())
    except UnreadableSourceError as error:
        remedy = "correct it, or run this command with the Python version of the image"
        return CheckFindings((StatedProblem("trainer", str(error), remedy),))


def is_misspelled(root: Path, module: str, function: str) -> str | None:
    """The module at `root` that was meant by `module`, which is not there: a similar name that has the function."""
    located = locate(root, module)
    near = located.nearest() if isinstance(located, Missing) else None
    if near is None or not isinstance(located, Missing):
        return None
    if not located.elsewhere:
        return near
    # A name that is no package of the source may be a package of the image.
    if is_installed(module.partition(".")[0]):
        return None
    meant = locate(root, near)
    if not isinstance(meant, Path):
        return None
    try:
        names = list(names_of(meant).functions())
    except UnreadableSourceError:
        return None  # another file, of which the spec says nothing
    return near if difflib.get_close_matches(function, names, n=1) else None


def _check_missing(program: Program, root: Path, located: Missing) -> CheckFindings:
    module = program.module or ""
    full = ".".join([*located.parents, located.part])
    near = is_misspelled(root, module, program.function)
    if near is not None:
        meant = locate(root, near)
        where = f" ({place(meant)})" if isinstance(meant, Path) else ""
        remedy = f"did you mean {near}{where}?"
    elif located.elsewhere:
        return CheckFindings(remarks=(_not_here(module, root),))
    else:
        remedy = "correct the name, or add the module"
    statement = f"there is no module {full} in {place(root)}"
    return CheckFindings((StatedProblem("trainer", statement, remedy),))


def _not_here(module: str, root: Path) -> str:
    if isinstance(locate(root / "src", module), Path):
        return (
            f"the module {module} is in {place(root / 'src')}, where Python does not look: set source_dir to that "
            "folder, or install the project by a line `.` in requirements.txt"
        )
    return f"the module {module} is not in {place(root)}: the image or requirements.txt must have it"


def _no_function(found: NoSuchName) -> Problem:
    functions = found.names.functions()
    near = difflib.get_close_matches(found.name, list(functions), n=1, cutoff=0.5)
    if near:
        remedy = f"did you mean {near[0]} ({place(found.names.path, functions[near[0]].lineno)})?"
    else:
        known = [name for name in functions if not name.startswith("_")][:8]
        remedy = f"name one of {', '.join(known)}" if known else "name a function of that file"
    statement = f"{place(found.names.path)} has no function {found.name}"
    return StatedProblem("trainer", statement, remedy)
