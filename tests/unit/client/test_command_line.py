"""The command as a user meets it, without a cloud: its exit code, its lines, and what it imports."""

import errno
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.client.cli import program
from muster.client.cli.option_groups import StackOptions
from muster.client.cli.output import write_whole
from muster.client.cli.run_watch import RareLines, telling_silence
from muster.client.client_errors import FileTroubleError
from muster.client.logs.log_lines import LogLine
from muster.client.sdk import Run
from muster.contract.aws.prices import SHIPPED_PRICES
from tests.memory import Fault
from tests.memory.cloud import MemoryCloud
from tests.support.memory_client import muster_of

GOOD = "replicas: 2\ntrainer: package.module:train\n"
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens there
NOTHING = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Answer(NamedTuple):
    """How a command ends."""

    code: int
    output: str
    error: str


@pytest.fixture
def muster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs a command as its entry point does, in a shell without an account."""

    def run(*arguments: str, stdin: str | io.StringIO = "", **environment: str) -> Answer:
        with monkeypatch.context() as shell:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                shell.delenv(name)
            own = {**NOTHING, "AWS_REGION": "us-east-1", "COLUMNS": "100", "NO_COLOR": "1", **environment}
            for name, value in own.items():
                shell.setenv(name, value)
            shell.setattr(sys, "argv", ["muster", *arguments])
            shell.setattr(sys, "stdin", io.StringIO(stdin) if isinstance(stdin, str) else stdin)
            with pytest.raises(SystemExit) as ended:
                program.main()
        return Answer(int(ended.value.code or 0), *capsys.readouterr())

    return run


Muster = Callable[..., Answer]


def test_a_wrong_option_of_the_embedded_cloud_is_told_before_it_starts(muster: Muster, tmp_path: Path) -> None:
    for option, value in {"--stop-grace-seconds": "0", "--account": "12"}.items():
        answer = muster("local", "up", "--state", str(tmp_path), option, value)
        assert (answer.code, f"Invalid value for '{option}'" in answer.error) == (2, True), answer
    assert not list(tmp_path.iterdir())


def test_plan_needs_no_cloud(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(GOOD)
    answer = muster("plan", str(tmp_path / "run.yaml"), "--json")
    assert (answer.code, len(json.loads(answer.output)["requests"])) == (0, 2), answer.error
    answer = muster("plan", "-", "--json", stdin="replicas: 0\ntrainer: m:f\n")
    error = json.loads(answer.output)["error"]
    assert (answer.code, error["code"], error["problems"][0]["field"]) == (2, "Muster.SpecError", "replicas")
    for words, code, name in (("nothing", 2, "UsageError"), ("status told --profile nobody", 3, "CredentialsError")):
        answer = muster(*words.split(), "--json")
        assert (answer.code, json.loads(answer.output)["error"]["code"]) == (code, f"Muster.{name}"), words


def test_trouble_on_the_way_to_the_cloud_is_one_line(muster: Muster) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    for environment, message in (
        ({}, "No usable AWS credentials: Unable to locate credentials. Log in"),
        ({"AWS_PROFILE": "nobody"}, "The config profile (nobody) could not be found."),
        ({**keys, "AWS_ENDPOINT_URL": NOWHERE}, f'"{NOWHERE}/". If this is the embedded cloud, start it'),
        ({**keys, "AWS_ENDPOINT_URL": "nonsense"}, "Invalid endpoint: nonsense."),
        ({"AWS_REGION": "us east"}, "'us east'"),
        ({"AWS_REGION": ""}, "No AWS region is set: pass --region"),
    ):
        answer = muster("status", "digits", **environment)
        assert (answer.code, message in answer.error) == (3, True), answer.error
        assert (answer.error.startswith("muster: "), answer.error.count("\n")) == (True, 1), answer.error


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("/nowhere/tool --for me", "cannot be used: /nowhere/tool: no such file or directory"),
        ("/", "cannot be used: /: permission denied"),
        ("false", "failed and did not say why"),
        ("sh -c 'echo log in >&2; echo first >&2; exit 3'", "failed: log in first"),
        ("sh -c 'exit", "gives no credentials that can be read: No closing quotation"),
        ("echo nonsense", "gives no credentials that can be read: Expecting value: line 1 column 1 (char 0)"),
        ("echo []", "gives no credentials that can be read. "),
        ("printf '\\377'", "gives no credentials that can be read: 'utf-8' codec"),
        ("""echo '{"Version": 2}'""", "failed: Unsupported version '2'"),
        (
            """echo '{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2020-01-01T00:00Z"}'""",
            "cannot be used: Credentials were refreshed, but the refreshed credentials are still expired",
        ),
    ],
)
def test_a_program_that_gives_no_credentials_is_named_with_its_profile(
    muster: Muster, tmp_path: Path, program: str, message: str
) -> None:
    (tmp_path / "config").write_text(
        f"[profile own]\ncredential_process = {program}\n"
        "[profile role]\nrole_arn = arn:aws:iam::123456789012:role/a\nsource_profile = own\n"
    )
    for profile in ("own", "role"):
        answer = muster(
            *("status", "digits", "--profile", profile),
            AWS_CONFIG_FILE=str(tmp_path / "config"),
            AWS_ENDPOINT_URL=NOWHERE,
        )
        begin = "muster: No usable AWS credentials: the credential_process of the profile own "
        assert (answer.code, answer.error.startswith(begin + message)) == (3, True), answer.error
        assert answer.error.count("\n") == 1


def test_what_a_user_writes_wrongly_is_one_line_before_anything_is_called(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for arguments, stdin, message in (
        (("plan", "/nowhere/run.yaml"), "", "/nowhere/run.yaml cannot be read: no such file or directory"),
        (("plan", "/"), "", "/ cannot be read: is a directory"),
        (("list", "--state", "stopping"), "", "--state: found 'stopping'"),
        (("init", str(tmp_path / "file")), "", "/file cannot be written: file exists"),
        (("launch", "-", "--name", "two words"), GOOD, "  - name: found 'two words'; "),
        (("list", "--limit", str(10**20), "--json"), "", "Invalid value for '--limit': "),
        (("logs", "one", "--tail", str(10**20), "--json"), "", "Invalid value for '--tail'"),
        (("init", "-", "--from", "train"), "", "  - trainer: found 'train'; "),
    ):
        answer = muster(*arguments, stdin=stdin, AWS_ENDPOINT_URL=NOWHERE)
        assert (answer.code, message in answer.error) == (2, True), f"{arguments}: {answer.error}"
        assert (answer.error.startswith("muster: "), "Traceback" in answer.error) == (True, False)
    assert "\ntrainer: package.module:train\n" in muster("init", "-", "--from", "package.module:train").output


def test_init_writes_a_run_once(muster: Muster, tmp_path: Path) -> None:
    folder = str(tmp_path / "first")
    written = muster("init", folder)
    assert written.code == 0, written.error
    assert f"Wrote {folder}/run.yaml, {folder}/training.py." in written.output
    assert muster("plan", f"{folder}/run.yaml").code == 0
    Path(folder, "run.yaml").unlink()
    again = muster("init", folder)
    assert (again.code, f"{folder}/training.py already exists" in again.error) == (2, True)
    assert not Path(folder, "run.yaml").exists()


@pytest.mark.parametrize("end", [KeyboardInterrupt, EOFError])
def test_a_question_that_is_not_answered_ends_the_command_as_interrupted(
    muster: Muster, tmp_path: Path, end: type[BaseException]
) -> None:
    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, _: int | None = -1, /) -> str:
            raise end

    for arguments in (("init", str(tmp_path / "new")), ("deadletters", "drop", "--all")):
        answer = muster(*arguments, stdin=Keyboard())
        assert (answer.code, answer.error.strip()) == (130, ""), arguments
    assert not list(tmp_path.iterdir())


def test_a_local_trainer_is_shipped_and_its_mistakes_are_found_with_those_of_the_spec(
    muster: Muster, tmp_path: Path
) -> None:
    (tmp_path / "training.py").write_text("def train(context, rounds: int): pass\n")
    spec = tmp_path / "run.yaml"
    spec.write_text("replicas: 0\ntrainer: training:trian\n")
    answer = muster("launch", str(spec), AWS_ENDPOINT_URL=NOWHERE)
    for words in ("did you mean train (", "replicas: found 0; at least 1", f"The source is the folder {tmp_path}"):
        assert (answer.code, words in answer.error) == (2, True), answer.error
    spec.write_text("replicas: 1\ntrainer: training:train\nkwargs: {rounds: 3}\n")
    assert f"Source: 2 files, 10,240 bytes from {tmp_path}" in muster("plan", str(spec)).output


def test_a_launch_that_is_interrupted_names_its_run(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = MemoryCloud()
    cloud.calls.inject(Fault("StartExecution", KeyboardInterrupt(), after_effect=True))
    monkeypatch.setattr(StackOptions, "muster", lambda _: muster_of(cloud))
    answer = muster("launch", "-", stdin=GOOD)
    [run] = muster_of(cloud).list()
    assert (answer.code, answer.output) == (130, "")
    assert answer.error.endswith(f"launching again with `--name {run.run}` starts it at most once.\n")


def test_an_interrupted_log_says_that_a_run_goes_on_only_if_it_does(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[LogLine]:
        raise KeyboardInterrupt
        yield

    stack = muster_of(MemoryCloud())
    run = stack.launch({"name": "one", "replicas": 2, "trainer": "package.module:train"})
    monkeypatch.setattr(StackOptions, "muster", lambda _: stack)
    monkeypatch.setattr(Run, "logs", interrupted)
    says = "The run one is still running. To stop it: `muster cancel one`.\n"
    assert muster("logs", "one", "--follow") == (130, "", says)
    run.cancel()
    for arguments in ((), ("--follow",)):
        assert muster("logs", "one", *arguments) == (130, "", "")


def test_the_version_is_printed_and_help_imports_nothing_heavy(muster: Muster) -> None:
    assert muster("--version") == (0, f"muster {version('muster-train')}\n", "")
    lists = (
        "import sys; from muster.client.cli.program import main; sys.argv = ['muster', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
    )
    for code, heavy in (
        (lists, "boto3 pydantic muster.local.commands"),
        ("import muster.client.cli.launch_commands", "botocore boto3 rich muster.control pathspec"),
        (
            "import muster.client.cli.inspect_commands",
            "boto3 rich muster.contract.spec.spec muster.client.runs.run_status",
        ),
        ("import muster.client.cli.watch_commands", "boto3 rich muster.contract.spec.spec muster.report.page_model"),
    ):
        checked = f"{code}\nimport sys; print('imported:', *sorted(set({heavy.split()}) & set(sys.modules)))"
        answer = subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True, timeout=60, check=True)
        assert answer.stdout.endswith("imported:\n"), f"{code}: {answer.stdout}"
        assert code is not lists or ("local" in answer.stdout and "faults" in answer.stdout)


def test_a_flag_is_shown_without_the_value_that_it_does_not_take(muster: Muster) -> None:
    for command in ((), ("plan",), ("deadletters", "drop")):
        answer = muster(*command, "--help")
        assert ("--help" in answer.output, "<bool>" in answer.output) == (True, False), command


def test_whatever_the_operating_system_refuses_is_one_line(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "muster.toml").write_text("")
    settings = ("--settings", str(tmp_path / "muster.toml"))
    for arguments, message in (
        (("local", "up", "--state", str(tmp_path / "file")), f"{tmp_path}/file/local.json cannot be used: "),
        (("template", str(tmp_path / "file"), *settings), f"{tmp_path}/file cannot be used: file exists"),
        (("plan", "/nowhere/run.yaml"), "cannot be read"),
    ):
        answer = muster(*arguments)
        assert (answer.code, message in answer.error, answer.error.count("\n")) == (2, True, 1), answer.error


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "page.html", "first")

    def full(self: Path, *_: object) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as refused:
        write_whole(tmp_path / "page.html", "second")
    assert str(FileTroubleError.of(refused.value)).startswith(f"The disk of {tmp_path}/page.html is full")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"page.html": "first"}


def test_a_file_may_be_standard_output_in_a_pipe(tmp_path: Path) -> None:
    code = "from pathlib import Path\nfrom muster.client.cli.output import write_whole\n"
    code += "write_whole(Path('/dev/stdout'), 'page')"
    answer = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert answer.stdout == "page"
    with (tmp_path / "page.html").open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, timeout=60, check=True)
    assert (tmp_path / "page.html").read_text() == "page"


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_the_output_cannot_show_is_spelled_out(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    def shown(*arguments: str, stdin: str = "") -> str:
        output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with monkeypatch.context() as shell:
            shell.setattr(sys, "argv", ["muster", *arguments])
            shell.setattr(sys, "stdin", io.StringIO(stdin))
            shell.setattr(sys, "stdout", output)
            with pytest.raises(SystemExit):
                program.main()
        output.flush()
        return output.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]

    assert "\\u2013" in shown("gpus")
    error = json.loads(shown("plan", "-", "--json", stdin=f"{GOOD}caf\u00e9\U0001f600: 1\n"))["error"]
    assert error["problems"][0]["field"] == "caf\u00e9\U0001f600"


def test_silence_is_told_until_something_answers(capsys: pytest.CaptureFixture[str]) -> None:
    told = RareLines(print)
    for seconds in (10.0, 11.0, 42.0, 71.0, 75.0, 12.0):
        told(seconds)
    shown = ["no answer for 0:10, still trying", "no answer for 1:11, still trying", "no answer for 0:12, still trying"]
    assert capsys.readouterr().out.splitlines() == shown
    heard = threading.Event()
    with telling_silence(lambda _: heard.set(), quiet_seconds=0.02):
        assert heard.wait(10.0)
    with telling_silence(lambda _: heard.clear(), quiet_seconds=60.0):
        time.sleep(0.01)
    assert heard.is_set()


def test_gpus_are_listed_with_memory_and_price(muster: Muster) -> None:
    answer = muster("gpus", "--json")
    found = {one["instance_type"]: one for one in json.loads(answer.output)["types"]}
    assert (found["ml.g5.12xlarge"]["count"], found["ml.g5.12xlarge"]["memory_gib"]) == (4, 24)
    assert found["ml.p5.48xlarge"]["usd_per_hour"] == SHIPPED_PRICES.usd_per_hour["ml.p5.48xlarge"]
    assert "ml.g5.12xlarge    4 A10G  24 GiB   7.09" in muster("gpus").output
