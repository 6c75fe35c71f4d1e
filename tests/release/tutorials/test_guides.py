"""The commands that the guides show, typed into a terminal against the deployed stack.

The pages say $BUCKET for the stack's bucket and my-run for a run of the reader; here both are there.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.contract.layout import RunLayout
from muster.contract.run.finding import Finding, FindingDocument, findings_of
from muster.contract.spec.watch_rules import Rule
from tests.support.deployed import Deployed
from tests.support.shown_pages import DOCS, Step, blocks, install_stand_ins, steps
from tests.support.terminal import Terminal, shell_environment, typed
from tests.support.torchx_program import ENVIRONMENTS

# A page's examples of what AWS makes up.
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
RUN = """name: my-run
replicas: 2
trainer: tests.support.jobs.resuming:train
kwargs: {rounds: 3, fail_after: 9}
metrics: {tensorboard: true}
"""


@pytest.fixture
def reader(stack: Deployed, tmp_path: Path) -> Iterator[Terminal]:
    environment = install_stand_ins(tmp_path / "programs", stack.cloud.environment(shell_environment()))
    home = tmp_path / "home"
    home.mkdir()
    with Terminal(home, {**environment, "BUCKET": stack.bucket}, columns=200) as terminal:
        yield terminal


def follow(terminal: Terminal, step: Step, *, until: str = "") -> str:
    """Type a command of a page and hold what it shows; a server is interrupted when it shows `until`."""
    if until:
        terminal.start(step.command)
        terminal.see(until)
        terminal.press("C-c")
        answer = terminal.answer()
    else:
        answer = terminal.run(step.command)
        assert answer.code == 0, answer.text
    text = answer.text.partition("\n")[2]
    assert step.shows(text), f"{step.command}\n{text}"
    return text


def test_what_can_be_done_with_a_run_that_has_ended(reader: Terminal, stack: Deployed) -> None:
    (reader.home / "run.yaml").write_text(RUN, encoding="utf-8")
    assert reader.run("muster launch run.yaml --watch").code == 0
    report, ui, all_runs = steps("page.md")
    follow(reader, report)
    assert (reader.home / "my-run.html").stat().st_size > 10_000
    follow(reader, ui, until=r"http://127\.0\.0\.1:\d+/")
    follow(reader, all_runs)
    assert (reader.home / "runs.html").stat().st_size > 10_000
    (model,) = steps("model.md")
    follow(reader, model)
    assert (reader.home / "my-run-model" / "model.safetensors").exists()

    # The wandb package is not among what every test has: its folder is laid as it lays it.
    stack.s3.put_object(
        Bucket=stack.bucket, Key="checkpoints/my-run/r0/wandb/offline-run-20261122_101500-a1/run-a1.wandb", Body=b"x"
    )
    fetch_events, tensorboard, fetch_runs, upload = steps("metrics.md")
    follow(reader, fetch_events)
    assert tensorboard.command == "tensorboard --logdir events"
    fetched = {path.parts[-3] for path in reader.home.glob("events/*/tensorboard/*")}
    assert fetched == {"r0", "r1"}
    follow(reader, fetch_runs)
    follow(reader, upload)

    (delete,) = steps("upgrading.md")
    follow(reader, delete)
    assert "Contents" not in stack.s3.list_objects_v2(Bucket=stack.bucket, Prefix="rendezvous/my-run/")


def test_a_spec_in_the_inbox(reader: Terminal, stack: Deployed) -> None:
    put, listing = steps("running.md")
    (reader.home / "run.yaml").write_text(RUN.replace("my-run", "from-inbox"), encoding="utf-8")
    follow(reader, put)
    assert stack.run("from-inbox").result().verdict == "succeeded"
    # The page shows a run of its own.
    assert reader.run(listing.command).code == 0


def test_a_finding_of_a_replica_that_watches_itself(reader: Terminal, stack: Deployed) -> None:
    (status,) = steps("watching.md")
    spec = stack.gated("night", replicas=3)
    run = stack.start(spec, "night")
    run.wait_for_training(0, 1, 2)
    words = re.search(r"watch\.hang: .*?: (.*) \(restart\)", " ".join(status.promised.split()))
    assert words is not None
    evidence = words[1].replace("…", "waits for process 1")
    finding = Finding(rule=Rule.HANG, then="restart", rank=2, attempt=1, round=31, text=evidence)
    document = FindingDocument(run="night", finding=finding)
    key = f"{RunLayout('night').commits}{findings_of('night')}hang-00002-000001-0001-01.json"
    stack.s3.put_object(Bucket=stack.bucket, Key=key, Body=document.to_json())
    # The terminal breaks long lines where it is full, and the page where words end.
    shown = "".join(reader.run(status.command).text.split())
    assert Step("", "".join(status.promised.partition("…\n")[2].split())).shows(shown), shown


def test_an_event_that_was_not_handled(reader: Terminal, stack: Deployed) -> None:
    listing, replay = steps("failures.md")
    sample, error = listing.promised.splitlines()
    job = re.search(r"the training job (\S+):", sample)
    assert job is not None
    detail = {"TrainingJobName": job[1], "TrainingJobStatus": "Failed", "SecondaryStatus": "Failed"}
    event = {"detail-type": "SageMaker Training Job State Change", "source": "aws.sagemaker", "detail": detail}
    reason = error.strip().removeprefix("lambda: ")
    attributes = {"RequestID": "1", "ErrorCode": "200", "ErrorMessage": reason}
    sent = stack.letters.sqs.send_message(
        QueueUrl=stack.letters.url,
        MessageBody=json.dumps(event),
        MessageAttributes={name: {"DataType": "String", "StringValue": text} for name, text in attributes.items()},
    )
    own = Step(listing.command, _TIME.sub("…", _ID.sub(sent["MessageId"], listing.promised)))
    follow(reader, own)
    follow(reader, Step(*(_ID.sub(sent["MessageId"], part) for part in replay)))
    assert stack.letters.about(job[1]) == []


def test_older_versions_of_a_function_are_deleted(reader: Terminal, stack: Deployed) -> None:
    name = json.loads(stack.outputs["FunctionNames"])["attempt"]
    version = stack.functions.publish_version(FunctionName=name)["Version"]
    listing, delete = steps("costs.md")
    shown = follow(reader, Step(listing.command.replace("FUNCTION", name), f'"{version}"'))
    assert "$LATEST" in shown
    follow(reader, Step(delete.command.replace("FUNCTION", name).replace("VERSION", version), ""))
    left = stack.functions.list_versions_by_function(FunctionName=name)["Versions"]
    assert version not in [each["Version"] for each in left]
    # The function itself is still there.
    assert stack.functions.get_function(FunctionName=name)["Configuration"]["Version"] == "$LATEST"


def test_the_checks_that_cost_nothing(reader: Terminal) -> None:
    # tests/e2e/test_verify.py runs the second command.
    without_run, with_run = steps("verify.md")
    assert with_run.command == "muster verify"
    text = follow(reader, without_run)
    assert "failed" not in re.findall(r"^(\w+) ", text, re.MULTILINE)


def test_the_commands_of_torchx(stack: Deployed, tmp_path: Path) -> None:
    environment = stack.cloud.environment(shell_environment())
    environment["PATH"] = f"{ENVIRONMENTS / 'stable' / 'bin'}:{environment['PATH']}"
    home = tmp_path / "home"
    (home / "work" / "my").mkdir(parents=True)
    (home / "work" / "my" / "training.py").write_text("import time\ntime.sleep(600)\n", encoding="utf-8")
    # `make test` has installed it.
    install, run, *others = steps("torchx.md")
    assert install.command.startswith("pip install 'muster-train[torchx]'")
    with Terminal(home, environment, columns=200) as terminal:
        terminal.run("cd work")
        image = re.sub(r"--image \S+", "--image muster-local/python:latest", run.command)
        started = terminal.run(image)
        handle = re.search(r"muster://torchx/training-[0-9a-f]{8}", run.promised)
        own = re.search(r"^muster://torchx/(training-\w+)$", started.text, re.MULTILINE)
        assert started.code == 0, started.text
        assert handle is not None
        assert own is not None, started.text
        stack.run(own[1]).wait_for_training(0, 3)
        for step in others:
            answer = terminal.run(step.command.replace(handle[0], own[0]))
            assert answer.code == 0, answer.text
        assert stack.run(own[1]).result().verdict == "stopped"


@pytest.mark.timeout(600)
def test_the_first_run_on_a_cluster(tmp_path: Path) -> None:
    up = "muster local up --hyperpod --nodes 2"
    with Terminal(tmp_path, shell_environment(), columns=200) as terminal:
        try:
            # Other tests have clouds of their own.
            assert len(typed("hyperpod.md", terminal, {up: f"{up} --port 0"})) == 9
        finally:
            # An interrupted guide leaves its embedded cloud running.
            terminal.run("muster local down")


TYPED_HERE = {
    *("costs.md", "failures.md", "hyperpod.md", "metrics.md", "model.md", "page.md"),
    *("running.md", "torchx.md", "upgrading.md", "verify.md", "watching.md"),
}
TUTORIAL = {f"tutorial/{name}.md" for name in ("demo", "your-code", "your-data", "your-gpus", "production")}


def test_every_page_with_commands_is_typed_by_a_test() -> None:
    shown = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    # test_tutorial.py types the tutorial and deploying.md.
    # tests/unit/docs/test_recipes.py calls the commands of recipes.md, which need no stack.
    elsewhere = {"deploying.md", "recipes.md"}
    assert {page for page in shown if blocks(page)} == TYPED_HERE | TUTORIAL | elsewhere
