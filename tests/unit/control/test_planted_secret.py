"""A secret in a refused spec is in none of the places that show the refusal. One is planted in each private field."""

import io
import itertools
import json
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from muster.client.cli import program
from muster.client.runs.observer import Observer
from muster.contract.errors import MusterError
from muster.control.aws.inbox import Inbox
from muster.control.notify import notification
from muster.control.runtime.function import logger
from muster.control.start import Started, Starter
from muster.executor import MusterExecutor
from muster.options.torchx.client.application_spec import Application, document_of
from tests.memory.harness import RUN, SPEC, ControlHarness
from tests.support.control_steps import Row, cleared, cut_off, fail, finished, launched
from tests.support.handlers import loader
from tests.support.memory_client import client_of, muster_of
from tests.support.page_data import data_in

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")

TEXT, NUMBER = "hunter2canary", 7_391_826_450_917
LONG = f"{TEXT} " * 500
RULE = {"rule_configuration_name": "r", "rule_evaluator_image": "i"}
HOOK = {"s3_output_path": "s3://bucket/debug"}

# Mistakes that a user can make in fields of a spec; each holds the secret.
MISTAKES: dict[str, dict[str, Any]] = {
    "environment: number": {"environment": {"TOKEN": NUMBER}},
    "environment: list": {"environment": {"TOKEN": [TEXT]}},
    "environment: mapping": {"environment": {"TOKEN": {TEXT: None}}},
    "environment: too long": {"environment": {"TOKEN": LONG}},
    "environment: pairs": {"environment": [f"TOKEN={TEXT}"]},
    "environment: pair as a name": {"environment": {f"TOKEN={TEXT}": None}},
    "environment: pair as a name of overrides": {"overrides": {"0": {"environment": {f"TOKEN: {TEXT}": "a"}}}},
    "hyper_parameters: pair as a name": {"hyper_parameters": {f"token={TEXT}\n": "a"}},
    "kwargs: pair as a name": {"kwargs": {f"token={TEXT}": float("nan")}},
    "environment: text": {"environment": f"TOKEN={TEXT}"},
    "environment: surrogate": {"environment": {"TOKEN": f"{TEXT}\ud800"}},
    "environment: misspelled": {"enviroment": {"TOKEN": TEXT}},
    "environment: not indented": {"environment": None, "TOKEN": TEXT},
    "overrides": {"overrides": {"0": {"environment": {"TOKEN": NUMBER}}}},
    "overrides: too long": {"overrides": {"0": {"environment": {"TOKEN": LONG}}}},
    "overrides: list": {"overrides": [{"ranks": "0", "environment": {"TOKEN": TEXT}}]},
    "overrides: no such rank": {"overrides": {"7": {"environment": {"TOKEN": TEXT}}}},
    "hyper_parameters: number": {"hyper_parameters": {"token": NUMBER}},
    "hyper_parameters: line break": {"hyper_parameters": {"token": f"{TEXT}\n"}},
    "hyper_parameters: text": {"hyper_parameters": f"token={TEXT}"},
    "hyper_parameters: too long": {"hyper_parameters": {"token": LONG * 4}},
    "kwargs: list": {"kwargs": [TEXT, NUMBER]},
    "kwargs: text": {"kwargs": TEXT},
    "kwargs: surrogate": {"kwargs": {"token": [f"{TEXT}\ud800"]}},
    "kwargs: not a number": {"kwargs": {"token": TEXT, "loss": float("nan")}},
    "kwargs: without a trainer": {"kwargs": {"token": TEXT}, "trainer": None, "entrypoint": ["python"]},
    "arguments: text": {"arguments": TEXT},
    "arguments: too long": {"arguments": ["--token", LONG]},
    "arguments: line break": {"arguments": [f"--token={TEXT}\n"]},
    "arguments: number": {"arguments": ["--token", NUMBER]},
    "arguments: without an entrypoint": {"arguments": ["--token", TEXT]},
    "entrypoint: text": {"trainer": None, "entrypoint": f"python train.py --token {TEXT}"},
    "entrypoint: too long": {"trainer": None, "entrypoint": ["sh", "-c", LONG]},
    "entrypoint: with a trainer": {"entrypoint": ["sh", "-c", TEXT]},
    "hook_parameters": {"debug_hook_config": {**HOOK, "hook_parameters": {"token": NUMBER}}},
    "collection_parameters": {
        "debug_hook_config": {**HOOK, "collection_configurations": [{"collection_parameters": {"token": LONG}}]}
    },
    "rule_parameters": {"debug_rule_configurations": [{**RULE, "rule_parameters": {"token": f"{TEXT}\n"}}]},
    "profiling_parameters": {"profiler_config": {"profiling_parameters": {"token": LONG}}},
    "another mistake": {"environment": {"TOKEN": TEXT}, "kwargs": {"token": NUMBER}, "replicas": 0},
    "a wrong name beside it": {"environment": {"TOKEN": TEXT, "9": "a"}, "hyper_parameters": {"a": TEXT, "b\n": "a"}},
}
# Mistakes that only text has.
TEXTS = {
    "number of two kinds": "environment: {PIN: 07391826450917}",
    "underscores": "environment: {PIN: 7_391_826_450_917}",
    "many digits": f"environment: {{PIN: {str(NUMBER) * 40}}}",
    "tag": f"environment: {{TOKEN: !{TEXT} a}}",
    "tag alone": f"environment: {{TOKEN: !{TEXT}}}",
    "verbatim tag": f"environment: {{TOKEN: !<{TEXT}> a}}",
    "alias": f"environment: {{TOKEN: *{TEXT}}}",
    "anchor": f"environment: {{TOKEN: &{TEXT}}}",
    "colon": f"environment:\n  TOKEN: {TEXT}: more",
    "quote": f'environment:\n  TOKEN: "{TEXT}\n',
    "escape": f'environment:\n  TOKEN: "{TEXT}\\q"',
    "bracket": f"environment: [{TEXT}",
    "tab": f"environment:\n\tTOKEN: {TEXT}",
    "directive": f"%{TEXT}\n---\na: b",
    "tag directive": f"%TAG !x! {TEXT}\n%TAG !x! {TEXT}\n---\na: b",
    "block": f"environment:\n  TOKEN: |{TEXT}\n",
    "key": f"environment: {{? {{{TEXT}: 1}} : 2}}",
    "two documents": f"a: 1\n---\nTOKEN: {TEXT}",
    "a list": f"- environment: {{TOKEN: {TEXT}}}",
    "only text": TEXT,
}


def spec_with(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**SPEC, **fields}.items() if value is not None or fields.get(key) is None}


def clean(*shown: object) -> str:
    """All that was shown, if it does not hold the secret."""
    text = "\n".join(map(str, shown))
    assert TEXT not in text
    assert TEXT[:7] not in text
    assert str(NUMBER)[:7] not in re.sub("[_,]", "", text)
    return text


def all_of(error: BaseException) -> str:
    """What a program that does not catch the error shows of it, and what it carries."""
    return "".join(traceback.format_exception(error)) + repr(vars(error))


def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *arguments: str, text: str, folder: Path
) -> str:
    """What the command line prints about a spec with this text; it must refuse it."""
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    monkeypatch.setattr(sys, "argv", ["muster", *arguments, str(path)])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    return f"{out}{err}"


def inbox(harness: ControlHarness, text: str) -> str:
    """What the refusal of a spec in the inbox leaves: the file beside it, and the event."""
    starter = Starter(harness.executions, Inbox(harness.plane.store), harness.plane.bus)
    body = text.encode(errors="surrogatepass")
    etag = harness.plane.store.s3.put_object(Bucket="bucket", Key="inbox/a.yaml", Body=body)["ETag"]
    assert starter.from_inbox("inbox/a.yaml", etag.strip('"')) is Started.REFUSED
    complaint = harness.cloud.s3.objects("bucket")["inbox/a.yaml.error.txt"].body.decode()
    [event] = harness.cloud.events.of("Run Refused")
    return clean(complaint, event, notification("Run Refused", event).text)


def test_no_face_shows_a_secret_of_a_refused_document(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fields in MISTAKES.items():
        with row(name) as harness:
            document, sdk = spec_with(fields), muster_of(harness.cloud)
            for launch in (sdk.launch, sdk.plan):
                with pytest.raises(MusterError) as refused:
                    launch(document)
                clean(all_of(refused.value))
            # The function, its log, the cause of the execution, and what a client shows of it.
            log = io.StringIO()
            monkeypatch.setattr(logger.registered_handler, "stream", log)
            plan = loader(harness, monkeypatch)("plan")
            harness.executions.start(RUN, "{}")
            answer = plan({**harness.plan_request().model_dump(), "input": document})
            harness.cloud.workflow.fail(RUN, answer["error"], answer["cause"])
            observer = Observer(client_of(harness.cloud), RUN)
            status = observer.look()
            assert status.reason.startswith("Muster.SpecError")
            events = harness.cloud.events.of("Run Refused")
            assert len(events) == 1
            assert '"message":"refused"' in log.getvalue()
            clean(log.getvalue(), answer, status.to_line(), observer.event_log(), events)


def test_no_interface_of_others_shows_a_secret_of_a_refused_document(row: Row) -> None:
    for name, fields in MISTAKES.items():
        with row(name) as harness:
            document = spec_with(fields)
            executor = MusterExecutor(region="eu-west-1", spec=document)
            executor._muster = muster_of(harness.cloud)
            with pytest.raises(MusterError) as refused:
                executor.launch_replicas(0, "", {"trainer_module": "package", "trainer_kwargs": document.get("kwargs")})
            clean(all_of(refused.value))
            with pytest.raises(MusterError) as refused:
                document_of("app-1", Application("app", "node", "", "true", (), 0), {}, document)
            clean(all_of(refused.value))


def test_neither_the_command_line_nor_the_inbox_shows_a_secret_of_a_refused_text(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spelled = {name: json.dumps(spec_with(fields)).replace("NaN", ".nan") for name, fields in MISTAKES.items()}
    # All tell it by the same lines: each mistake meets one of them.
    commands = itertools.cycle([["plan"], ["plan", "--json"], ["launch"]])
    for name, text in (*spelled.items(), *TEXTS.items()):
        with row(name) as harness:
            inbox(harness, text)
            shown = clean(command(monkeypatch, capfd, *next(commands), text=text, folder=tmp_path))
            assert "muster: The spec has " in shown


@pytest.mark.parametrize("is_told", [True, False])
def test_a_program_that_repeats_a_secret_in_its_failure_shows_it_nowhere(
    harness: ControlHarness, *, is_told: bool
) -> None:
    """By an event, or, where that is lost, by the look of the settlement."""
    run = launched(harness, environment={"TOKEN": TEXT})
    reason = f"AlgorithmError: ValueError: no user {TEXT}, exit code: 1"
    if is_told:
        fail(harness, reason)
    else:
        harness.cloud.training.fail(harness.job(), reason)
        cleared(harness, cut_off(harness))
    finished(harness)
    objects = harness.cloud.s3.objects("bucket")
    written = {key: one.body.decode() for key, one in objects.items() if key.startswith(("control/", "ended/"))}
    del written[run.plan.layout.plan]
    written["the data of the page"] = json.dumps(data_in(written[run.plan.layout.page]))
    shown = clean(written, harness.cloud.events.entries)
    assert "no user (TOKEN, not shown)" in shown
