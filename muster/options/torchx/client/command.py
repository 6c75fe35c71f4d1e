"""Turns a role's command into the program of a container, which fills in TorchX's macro of the rank.

A training job's arguments are the same for every rank, and each has at most 256 characters. So the command becomes a
script for the shell, cut into arguments of that length; the shell joins them again and fills in the rank.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from muster.contract.errors import MusterError

ARGUMENT_MAX = 256  # CreateTrainingJob: ContainerArguments has 1-256 characters each
ARGUMENTS_MAX = 100  # CreateTrainingJob: ContainerArguments has at most 100
RANK = "\ue000rank\ue000"
"""A placeholder for the rank, which only the shell knows: private characters that occur in no command."""

SHELL = ["sh", "-c", 'IFS=; s="$*"; unset IFS; eval "$s"', "sh"]
_NEWLINE = "nl=$(printf '\\n.'); nl=${nl%.}; "
_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.run\b")
# The options by which torchrun finds its group, and their new values. Port 0 is any free port, because containers may
# share a host.
_ALONE = {"--nnodes": "1", "--node_rank": "0", "--rdzv_endpoint": "localhost:0"}
_GROUP_OPTION = re.compile(
    r"""(?P<option>--(?:nnodes|node[_-]rank|rdzv[_-]endpoint))(?P<gap>[ =])"""
    r"""(?:'[^']*'|"[^"]*"|\$\([^)]*\)|[^\s'"();&|])+"""
)
_PYTHON = ("python", "python3")
# torchrun, with one process for each GPU or one, and the variables in which SageMaker's own toolkit names the folders.
_TORCHRUN_HERE = [
    "sh",
    "-c",
    """base=${SAGEMAKER_BASE_DIR:-/opt/ml}
export SM_MODEL_DIR="$base/model" SM_OUTPUT_DATA_DIR="$base/output/data"
for folder in "$base"/input/data/*/; do
  test -d "$folder" && export "SM_CHANNEL_$(basename "$folder" | tr a-z.- A-Z__)=${folder%/}"
done
export SM_NUM_GPUS=$(python -c "import torch; print(torch.cuda.device_count())")
exec python -m torch.distributed.run --standalone --nproc_per_node=$((SM_NUM_GPUS > 1 ? SM_NUM_GPUS : 1)) "$@\"""",
    "sh",
]


class CommandError(MusterError):
    """The entrypoint and the arguments of a role are no program, or not one that an option asks for."""


class LongCommandError(MusterError):
    """The command does not fit into a request."""

    def __init__(self, characters: int) -> None:
        limit = ARGUMENT_MAX * ARGUMENTS_MAX
        super().__init__(
            f"The command and the environment have {characters:,} characters; a training job takes at most {limit:,}. "
            "Put the command into a script in the image or in source_dir."
        )


def shell_arguments(command: Sequence[str], exported: Mapping[str, str]) -> list[str]:
    """The arguments with which `SHELL` sets `exported` and runs `command`, which may hold `RANK`.

    Raises:
        LongCommandError: it does not fit.
    """
    settings = [f"export {name}={_quoted(value)}; " for name, value in exported.items()]
    words = " ".join(map(_quoted, command))
    script = f"{''.join(settings)}exec {words}"
    if "${nl}" in script:
        script = _NEWLINE + script
    if len(script) > ARGUMENT_MAX * ARGUMENTS_MAX:
        raise LongCommandError(len(script))
    return [script[first : first + ARGUMENT_MAX] for first in range(0, len(script), ARGUMENT_MAX)]


def program_of(entrypoint: str, arguments: Sequence[str], named: Mapping[str, str], torchrun: bool | None) -> list[str]:
    """The command of a role.

    Without an entrypoint the arguments are those of the former aws_sagemaker scheduler: a script or `-m` and a module,
    which ran under torchrun with `named` (its hyperparameters) as further arguments. `torchrun` chooses that for a
    program in Python, or chooses against it.

    Raises:
        CommandError: there is no program, or it is none for torchrun.
    """
    words, program = list(arguments), entrypoint.strip()
    of_python = words[:1] == ["-m"] or (bool(words) and words[0].endswith(".py"))
    if not program and not words:
        message = "entrypoint: the role has neither an entrypoint nor arguments; name a program, a script or -m MODULE."
        raise CommandError(message)
    if torchrun and (not of_python or program not in {"", *_PYTHON}):
        message = (
            f"torchrun: found True, but the role runs {' '.join([entrypoint, *words[:1]]).strip()!r}; leave it out, or "
            "make python the entrypoint and a script or -m MODULE its first argument."
        )
        raise CommandError(message)
    if torchrun or (torchrun is None and of_python and not program):
        given = {word.partition("=")[0] for word in words}
        others = [word for name, value in named.items() if f"--{name}" not in given for word in (f"--{name}", value)]
        return [*_TORCHRUN_HERE, *words, *others]
    if program:
        return of_one_node([entrypoint, *words])
    return of_one_node(["python", *words] if of_python else words)


def started_in(command: Sequence[str]) -> list[str]:
    """The words of the program that `command` starts: those behind a shell, if all it does is start torchrun."""
    if list(command[: len(_TORCHRUN_HERE)]) == _TORCHRUN_HERE:
        return ["torchrun", *command[len(_TORCHRUN_HERE) :]]
    if len(command) == 3 and command[0] in {"sh", "bash"} and command[1] == "-c" and _TORCHRUN.match(command[2]):
        try:
            return shlex.split(command[2])
        except ValueError:
            return []
    return list(command)


def of_one_node(command: Sequence[str]) -> list[str]:
    """`command` with every torchrun in it as its own group: replicas share no network, only Muster's rendezvous."""
    if not any(map(_TORCHRUN.search, command)):
        return list(command)
    before = ["", *command]
    return [
        _ALONE.get(_option(option)) or _GROUP_OPTION.sub(_alone, word)
        for option, word in zip(before, command, strict=False)
    ]


def _alone(found: re.Match[str]) -> str:
    return f"{found['option']}{found['gap']}{_ALONE[_option(found['option'])]}"


def _option(text: str) -> str:
    """An option as `_ALONE` spells it; torchrun accepts `-` and `_`."""
    return f"--{text[2:].replace('-', '_')}"


def _quoted(text: str) -> str:
    """`text` quoted for the shell, with the rank filled in and line breaks, which no argument may have, replaced."""
    parts = re.split(f"({RANK}|\n)", text)
    spelled = {RANK: '"$MUSTER_RANK"', "\n": '"${nl}"'}
    return "".join(spelled.get(part) or shlex.quote(part) for part in parts if part) or "''"
