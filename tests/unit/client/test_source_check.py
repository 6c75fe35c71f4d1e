"""What `plan` and `launch` find out about a trainer, a script and an image, without running anything."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from muster.client.checks.check_findings import CheckFindings
from muster.client.checks.source_check import check_source, read_checked
from muster.contract.errors import SpecError
from muster.contract.spec.hook import OWN_LOOP, own_loop_kwargs

TRAINING = """
    import functools
    from typing import Any, Literal, Optional, Sequence

    def train(context, *, rounds: int, rate: float = 0.1, name: str | None = None, mode: Literal["a", "b"] = "a",
              sizes: Sequence[int] = (), more: "Optional[dict[str, Any]]" = None, late: int = None):
        pass

    def _private(context):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, {"training.py": TRAINING})
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))


def found(folder: Path, trainer: str = "training:train", **fields: object) -> CheckFindings:
    return check_source({"trainer": trainer, "source_dir": str(folder), **fields})


def problems(folder: Path, trainer: str = "training:train", **kwargs: object) -> list[str]:
    return [str(item).replace(f"{folder}/", "") for item in found(folder, trainer, kwargs=kwargs).problems]


def test_a_trainer_that_can_be_called_is_accepted(folder: Path) -> None:
    values = {"rounds": 3, "rate": 1, "name": None, "mode": "b", "sizes": [1], "more": {"x": 1}, "late": None}
    assert found(folder, kwargs=values) == CheckFindings()


def test_a_misspelled_trainer_is_answered_with_the_nearest(folder: Path) -> None:
    for trainer, expected in (
        ("training:trian", "training.py has no function trian; did you mean train (training.py:5)?"),
        ("training:other", "training.py has no function other; name one of train"),
        ("trianing:train", "did you mean training (training.py)?"),
    ):
        (problem,) = problems(folder, trainer, rounds=1)
        assert expected in problem
    # Of a trainer with its own loop the user's function is looked for; how it is called is known in the replica only.
    kwargs = own_loop_kwargs("training:trian", {"anything": 1})
    assert "did you mean train" in str(found(folder, OWN_LOOP, kwargs=kwargs).problems[0])
    assert found(folder, OWN_LOOP, kwargs=own_loop_kwargs("training:train", {"anything": 1})).problems == ()


ARGUMENTS: list[tuple[dict[str, object], list[str]]] = [
    ({"round": 3}, ["kwargs.round: train (training.py:5) has no such parameter; did you mean rounds?"]),
    ({}, ["kwargs.rounds: missing"]),
    ({"rounds": "3"}, ["kwargs.rounds: found text; train (training.py:5) takes a whole number"]),
    ({"rounds": 2.5}, ["kwargs.rounds: found a number; train (training.py:5) takes a whole number"]),
    ({"rounds": 1, "rate": [1]}, ["kwargs.rate: found a list of 1 value; train (training.py:5) takes a number"]),
    ({"rounds": 1, "name": 7}, ["takes null or a string"]),
    ({"rounds": 1, "mode": "c"}, ["kwargs.mode: found text; train (training.py:5) takes 'a' or 'b'"]),
    ({"rounds": 1, "more": "x"}, ["takes a mapping or null"]),
    ({"rounds": None, "zzz": 1}, ["takes a whole number", "its parameters are rounds, rate, name, mode, sizes"]),
    ({"context": 1, "rounds": 1}, ["is given the context as its first argument, context"]),
]


def test_arguments_are_checked_by_name_and_type(folder: Path) -> None:
    for kwargs, expected in ARGUMENTS:
        made = problems(folder, **kwargs)
        assert len(made) == len(expected), (kwargs, made)
        assert [text for text, part in zip(made, expected, strict=True) if part not in text] == [], kwargs


def test_arguments_of_a_sweep_are_checked_too(folder: Path) -> None:
    sweep = {"kwargs.rounds": [1, 2], "kwargs.more.deep": [1, 2], "kwargs.rat": [0.1, 0.2], "lr": [1, 2]}
    (problem,) = found(folder, sweep=sweep).problems
    assert str(problem).startswith("sweep.kwargs.rat: train (")
    assert str(problem).endswith("has no such parameter; did you mean rate?")
    (problem,) = found(folder, sweep={"kwargs.rounds": ["1", "2"]}).problems
    assert problem.field == "sweep.kwargs.rounds"
    assert found(folder, sweep=[1], kwargs={"rounds": 1}).problems == ()


def test_what_cannot_be_a_trainer_is_refused_with_its_line(tmp_path: Path) -> None:
    for code, expected in (
        ("def train(): pass", "takes no positional argument; write def train(context, …)"),
        ("def train(*, context): pass", "takes no positional argument"),
        ("def train(rounds: int): pass", "is given the context as its first argument, rounds"),
        ("async def train(context): pass", "is an async function"),
        ("def train(context):\n    yield 1", "contains yield"),
        ("def train(context, rounds, /): pass", "make it a keyword parameter"),
        ("def train(context:\n    pass", "training.py:1 is not valid Python"),
    ):
        write(tmp_path, {"training.py": code})
        assert expected in problems(tmp_path)[0], code


UNKNOWABLE = [
    "def train(*arguments, **options): pass",
    "def train(context, **options): pass",
    "def wrap(f): return f\n@wrap\ndef train(): pass",
    "class Trainer:\n    def __call__(self): pass\ntrain = Trainer()",
    "class train:\n    def __init__(self): pass",
    "import functools\ntrain = functools.partial(print, 1)",
    "train = lambda: None",
    "from somewhere import train",
    "from somewhere import *",
    "try:\n    from fast import train\nexcept ImportError:\n    def train(): pass",
    "if True:\n    from .missing import train",
    "def __getattr__(name): return print",
    "globals()['train'] = print",
    "def make():\n    global train\n    train = print\nmake()",
    "for train in [print]: pass",
    "def train(context, x: 'Unknown', y: list['int'] = (), z: undefined.Type = None): pass",
    "int = str\ndef train(context, x: int): pass",
    "from typing import Annotated\ndef train(context, x: Annotated[str, 'words']): pass",
    "def train(context, x: bool = False):\n    def inner():\n        yield x",
]


def test_what_the_text_cannot_say_is_no_mistake(tmp_path: Path) -> None:
    for code in UNKNOWABLE:
        write(tmp_path, {"training.py": code})
        kwargs = {"x": "0"} if "x:" in code and "bool" not in code else {}
        assert problems(tmp_path, **kwargs) == [], code


def test_packages_and_re_exports_are_followed_to_the_definition(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "package/__init__.py": "from .training import train as run\nfrom . import helper",
            "package/training.py": "from package.inner.deep import train",
            "package/inner/deep.py": "def train(context, rounds): pass",
            "package/helper.py": "",
            "package/round.py": "from .round import train",
            "space/own.py": "def train(context): pass",
            "fast/core.cpython-311-x86_64-linux-gnu.so": "",
            "lazy/__init__.py": "__path__ = []",
        },
    )
    assert problems(tmp_path, "package:run", rounds=1) == []
    assert "deep.py:1) has no such parameter; did you mean rounds?" in problems(tmp_path, "package:run", round=1)[0]
    for opaque in ("package.round:train", "package:helper", "fast.core:train", "space:own", "lazy.any:train"):
        assert problems(tmp_path, opaque) == []
    assert problems(tmp_path, "space.own:train") == []
    (missing,) = problems(tmp_path, "package.trainin:train")
    assert "there is no module package.trainin in" in missing
    assert "did you mean package.training (package/training.py)?" in missing


def test_a_module_that_the_image_may_have_is_a_remark(tmp_path: Path) -> None:
    write(tmp_path, {"src/own/training.py": "def train(context): pass", "tests.py": ""})
    elsewhere = found(tmp_path, "somewhere.training:train")
    assert (elsewhere.problems, "must have it" in elsewhere.remarks[0]) == ((), True)
    in_src = found(tmp_path, "own.training:train")
    assert (in_src.problems, "set source_dir to that folder" in in_src.remarks[0]) == ((), True)
    # A similar name is a package that is installed here.
    write(tmp_path, {"jsons.py": "def train(context): pass"})
    assert found(tmp_path, "json:train").problems == ()


def test_an_ignore_file_is_heeded(folder: Path) -> None:
    (folder / ".musterignore").write_text("train*.py\n")
    assert ".musterignore leaves training.py out" in problems(folder, rounds=1)[0]
    (folder / ".musterignore").write_bytes(b"caf\xe9\n")
    with pytest.raises(SpecError, match=r"\.musterignore, which is not UTF-8 text"):
        found(folder)


def test_nothing_of_the_source_is_run_or_imported_and_no_warning_about_it_is_shown(folder: Path) -> None:
    write(folder, {"training.py": 'import no_such_module\nraise SystemExit\ndef train(context): return "\\d"'})
    with warnings.catch_warnings(action="error"):
        assert problems(folder) == []
    assert "training" not in sys.modules


def test_a_script_must_be_a_file_of_the_source(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", "package/__init__.py": ""})
    for words, expected in (
        (["python", "trian.py"], "entrypoint: there is no file trian.py in"),
        (["python", "-u", "-X", "dev", "trian.py"], "did you mean train.py?"),
        (["torchrun", "--nproc_per_node", "2", "trian.py"], "did you mean train.py?"),
        (["./run.sh"], "there is no file ./run.sh"),
        (["bash", "jobs/run.sh"], "there is no file jobs/run.sh"),
        (["python", "-m", "package.nothing"], "there is no module package.nothing"),
    ):
        (problem,) = check_source({"entrypoint": words, "source_dir": str(tmp_path)}).problems
        assert expected in str(problem), words


PROGRAMS = [
    *map(str.split, ("python train.py --config conf/own.yaml", "python -m elsewhere.module", "python /opt/program.py")),
    *map(str.split, ("python -m torch.distributed.run --nnodes 1 train.py", "accelerate launch anything.py")),
    *map(str.split, ("own-program", "python src/", f"python train.py {'x' * 300}.py")),
    *(["python", "-c", "print(1)"], ["python", "-uc", "import train.py"], ["sh", "-c", "python trian.py"]),
    *(["bash", "-lc", "python src/train.py"], ["sh", "-ec", "cd src && ./train.sh"]),
]


def test_a_program_that_may_be_there_is_accepted(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", "conf/own.yaml": "", "src/__main__.py": ""})
    for words in PROGRAMS:
        assert check_source({"entrypoint": words, "source_dir": str(tmp_path)}).problems == (), words


def test_an_argument_that_is_nearly_a_file_is_a_remark(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "", "conf/train.yaml": ""})
    spec = {"entrypoint": ["python", "train.py"], "arguments": ["--config=conf/trian.yaml", "--out", "new.json"]}
    (remark,) = check_source({**spec, "source_dir": str(tmp_path)}).remarks
    assert remark.endswith("did you mean conf/train.yaml?")


def test_an_image_name_is_read() -> None:
    for image, problem, remarks in (
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/training:7", False, 0),
        (f"123456789012.dkr.ecr.us-east-1.amazonaws.com/a/b@sha256:{'0' * 64}", False, 0),
        ("localhost:5000/training:1", False, 0),
        ("muster-local/python:latest", False, 0),
        ("foo", False, 2),
        ("pytorch/pytorch:2.7", False, 1),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/training", False, 1),
        ("https://registry.example/training:1", True, 0),
        ("Training:1", True, 0),
        ("training:", True, 0),
        ("registry.example/a//b:1", True, 0),
    ):
        made = check_source({"image": image})
        assert (bool(made.problems), len(made.remarks)) == (problem, remarks), image


def test_the_source_is_checked_together_with_a_spec_that_is_wrong(folder: Path) -> None:
    document = {"replicas": 0, "trainer": "training:trian", "source_dir": str(folder / "nowhere"), "volume_gb": "big"}
    with pytest.raises(SpecError) as refused:
        read_checked(document)
    assert [problem.field for problem in refused.value.problems] == ["source_dir", "volume_gb", "replicas"]
    with pytest.raises(SpecError) as refused:
        read_checked({**document, "source_dir": str(folder)})
    assert [problem.field for problem in refused.value.problems] == ["trainer", "volume_gb", "replicas"]


@pytest.fixture
def usual_depth() -> Iterator[None]:
    """Python's own limit of recursion, which other tests' packages raise."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_depth")
def test_of_what_cannot_be_read_here_nothing_is_known(tmp_path: Path) -> None:
    """Of a module as deep or as large as this, and of a parameter with such an annotation."""
    for top in (f"x = {'+'.join(['1'] * 5_000)}", f"x = {'-' * 100_000}1", f"x = '{'x' * 1_000_000}'"):
        write(tmp_path, {"training.py": f"{top}\ndef train(context): pass\n"})
        assert problems(tmp_path, rounds=1) == [], top[:20]
    for note in (" | ".join(["int"] * 2_500), "Annotated[()]", "Union[()]"):
        text = f"from __future__ import annotations\nfrom typing import *\ndef train(context, size: {note}): pass"
        write(tmp_path, {"training.py": text})
        assert problems(tmp_path, size="x") == [], note[:20]


def test_what_only_has_the_name_of_a_module_is_none(tmp_path: Path) -> None:
    (tmp_path / "package" / "__init__.py").mkdir(parents=True)
    (tmp_path / "loop.py").symlink_to("loop.py")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "__init__.py")
    for trainer in ("package.training:train", "loop:train", "pipe:train", "piped.training:train"):
        assert isinstance(found(tmp_path, trainer), CheckFindings)
    # Nor need another file with a similar name be Python.
    write(tmp_path, {"model.py": "print 'of Python 2'\n"})
    assert problems(tmp_path, "models:train") == []


def test_a_trainer_that_is_written_as_a_file_is_answered_with_its_module(folder: Path) -> None:
    for fields in ({"source_dir": str(folder)}, {}):
        (problem,) = check_source({"trainer": "training.py:train", **fields}).problems
        assert str(problem).endswith("name the module: training:train")


def test_a_package_that_the_embedded_cloud_lacks_is_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"training.py": "import os, nosuchlib.nn\nfrom data import load\ndef train(context): pass\n"})
    write(tmp_path, {"data.py": "import otherlib\nfrom muster import nothing\ntry:\n  import maybe\nexcept E: pass\n"})
    spec = {"trainer": "training:train", "source_dir": str(tmp_path)}
    assert check_source(spec).remarks == ()
    (remark,) = check_source({**spec, "image": "muster-local/python:latest"}).remarks
    assert f"-m pip install nosuchlib otherlib`, or name it in {tmp_path / 'requirements.txt'}" in remark
    # The stack's image is not known, but who answers is.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:4570")
    assert check_source(spec).remarks == (remark,)
    assert check_source({"entrypoint": ["python", "training.py"], "source_dir": str(tmp_path)}).remarks == (remark,)
    assert check_source({**spec, "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/a:1"}).remarks == ()
    write(tmp_path, {"requirements.txt": "nosuchlib\n"})
    assert check_source(spec).remarks == ()


def test_a_trainer_that_never_reads_its_rank_is_a_remark(tmp_path: Path) -> None:
    write(
        tmp_path, {"training.py": "from data import load\ndef train(context): load(context)\n", "data.py": "load = 1\n"}
    )
    spec = {"trainer": "training:train", "source_dir": str(tmp_path), "replicas": 2}
    (remark,) = check_source(spec).remarks
    assert remark.startswith("training:train never reads its rank")
    channel = {"input_data_config": [{"channel_name": "own"}]}
    for fields in ({"replicas": 1}, {"sweep": {"kwargs.seed": [1, 2]}}, {"overrides": {"1": channel}}):
        assert check_source({**spec, **fields}).remarks == (), fields
    write(tmp_path, {"data.py": "def load(context): return context.rank\n"})
    assert check_source(spec).remarks == ()
    # However long the file is that imports it.
    write(tmp_path, {"training.py": f"from data import load\ndef train(context): load(context)\n{'# x' * 300_000}\n"})
    assert check_source(spec).remarks == ()
