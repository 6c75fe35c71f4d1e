"""What `muster init` writes: specs that plan accepts, and trainers that train."""

import os
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from muster.client.checks.source_check import read_checked
from muster.client.cli.spec_file import read_spec
from muster.client.launch.dry_run import DryRun, dry_run
from muster.client.starter.frameworks import Kind, all_starters
from muster.client.starter.own_code import OwnCode, OwnCodeError, read_own_code
from muster.client.starter.starter_files import SPEC_FILE, Wish, starter_files
from muster.contract.document import written_fields
from muster.contract.errors import SpecError
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec_text

ROOT = Path(__file__).resolve().parents[3]


def write(wish: Wish, folder: Path) -> None:
    for name, text in starter_files(wish).items():
        (folder / name).write_text(text)


def planned(folder: Path) -> DryRun:
    return dry_run(read_checked(read_spec(str(folder / SPEC_FILE)).document))


def test_every_starter_passes_plan_without_a_remark(tmp_path: Path) -> None:
    for framework in all_starters():
        folder = tmp_path / framework
        folder.mkdir()
        write(Wish(framework, replicas=3), folder)
        dry = planned(folder)
        assert (len(dry.requests), dry.remarks) == (3, ()), framework
        assert dry.source is not None
        assert dry.source.files == len(starter_files(Wish(framework))), framework


def test_the_program_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Wish(kind=Kind.SCRIPT), tmp_path)
    assert planned(tmp_path).remarks == ()
    monkeypatch.setitem(os.environ, "SAGEMAKER_BASE_DIR", str(tmp_path / "ml"))
    monkeypatch.setattr(sys, "argv", ["program.py", *parse_spec_text((tmp_path / SPEC_FILE).read_text()).arguments])
    runpy.run_path(str(tmp_path / "program.py"), run_name="__main__")
    model = yaml.safe_load((tmp_path / "ml" / "model" / "line.json").read_text())
    assert model["slope"] == pytest.approx(2, abs=0.3)


def test_the_requirements_are_those_that_muster_is_tested_with() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    tested = {line for group in ("torch", "frameworks") for line in groups[group]}
    assert {line for starter, _ in all_starters().values() for line in starter.requirements} <= tested


def test_data_that_is_no_place_in_s3_is_refused() -> None:
    with pytest.raises(SpecError, match=r"s3_uri: found 'nowhere'"):
        starter_files(Wish(data="nowhere"))


def test_texts_are_read_as_they_were_given(tmp_path: Path) -> None:
    for name in ("my data #1", "x: y", 'it\'s "x" \\', "\U0001f600", "\x7f", "long " * 100 + "#x"):
        (channel,) = parse_spec_text(starter_files(Wish(data=f"s3://bucket/{name}"))[SPEC_FILE]).input_data_config
        assert channel.data_source.s3_data_source is not None
        assert channel.data_source.s3_data_source.s3_uri == f"s3://bucket/{name}"
    for name in ("names.py", "\U0001f600 #1.py"):
        (tmp_path / name).write_text("def train(context, name='\U0001f600'): pass\n", encoding="utf-8")
    own = read_own_code("\U0001f600 #1.py", tmp_path)
    assert read_own_code("names.py", tmp_path).kwargs == ('# name: "\U0001f600"',)
    assert parse_spec_text(starter_files(Wish(own=own))[SPEC_FILE]).entrypoint == ["python", "\U0001f600 #1.py"]


def test_every_field_is_there_once() -> None:
    own = OwnCode("training:train", ("name:", "# tags: 1"))
    for wish in (Wish(data="s3://bucket/prefix/", every_field=True), Wish(own=own, every_field=True)):
        named = re.findall(r"^(?:# )?([a-z_]+):(?: .*)?$", starter_files(wish)[SPEC_FILE], re.MULTILINE)
        assert sorted(named) == sorted(written_fields(Spec))


def test_own_code_is_read_for_its_trainer_and_arguments(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "fit.py").write_text(
        "from muster import Context\ndef helper(x): pass\ndef go(c: Context, rate: float, n: int = 3): pass\n"
    )
    own = read_own_code("code/fit.py", tmp_path)
    assert (own.trainer, own.kwargs) == ("code.fit:go", ("rate:   # float", "# n: 3   # int"))
    assert read_own_code("code.fit:go", tmp_path) == own
    write(Wish(own=own, replicas=1), tmp_path)
    with pytest.raises(SpecError, match=r"kwargs\.rate: found no value; go .* takes a number"):
        planned(tmp_path)
    filled = (tmp_path / SPEC_FILE).read_text().replace("rate:", "rate: 0.1")
    (tmp_path / SPEC_FILE).write_text(filled)
    assert planned(tmp_path).remarks == ()


def test_a_file_without_a_trainer_is_a_program_of_each_replica(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv)\n")
    own = read_own_code("train.py", tmp_path)
    assert (own.trainer, own.script) == (None, "train.py")
    write(Wish(own=own), tmp_path)
    assert parse_spec_text((tmp_path / SPEC_FILE).read_text()).entrypoint == ["python", "train.py"]
    assert planned(tmp_path).remarks == ()


def test_a_file_is_named_as_the_folder_of_the_spec_has_it(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "fit.py").write_text("def train(context): print(context.rank)\n")
    (code / "two words.py").write_text("print()\n")
    for named in (str(code / "fit.py"), "../code/fit.py", "./fit.py"):
        own = read_own_code(named, code)
        assert own.trainer == "fit:train"
        write(Wish(own=own), code)
        assert planned(code).remarks == ()
    assert read_own_code(str(code / "two words.py"), code).script == "two words.py"
    (tmp_path / "elsewhere.py").write_text("def train(context): pass\n")
    for named in (str(tmp_path / "elsewhere.py"), "../elsewhere.py"):
        with pytest.raises(OwnCodeError, match=f"it is outside of {re.escape(str(code))}"):
            read_own_code(named, code)


def test_code_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def :\n")
    for named, error in (
        ("missing.py", OwnCodeError),
        ("broken.py", OwnCodeError),
        ("train", SpecError),
        ("a.b", SpecError),
    ):
        with pytest.raises(error, match=re.escape(named.partition(".")[0])):
            read_own_code(named, tmp_path)


def test_a_script_with_a_trainer_that_can_be_hooked_trains_with_the_others(tmp_path: Path) -> None:
    for line, call, hook in (
        ("from transformers import Trainer, TrainingArguments", "Trainer()", "huggingface"),
        ("import trl", "trl.SFTTrainer()", "huggingface"),
        ("import lightning as L", "L.Trainer()", "lightning"),
        ("from lightning.pytorch.cli import LightningCLI", "LightningCLI()", "lightning"),
        ("from transformers import AutoModel", "AutoModel()", None),
        ("from own import Trainer", "Trainer()", None),
    ):
        (tmp_path / "fit.py").write_text(f"{line}\ndef main():\n  {call}\nif __name__ == '__main__':\n  main()\n")
        own = read_own_code("fit.py", tmp_path)
        assert (own.trainer, own.script, own.hook) == (None, "fit.py", hook), line
        write(Wish(own=own, replicas=2), tmp_path)
        spec = parse_spec_text((tmp_path / SPEC_FILE).read_text())
        assert (spec.hook, "sync_every" in spec.kwargs) == (hook, hook is not None), line
