"""The real workflow, deployed and executed: what a person sees of a run in the console."""

from __future__ import annotations

import json
from datetime import datetime

from muster import Muster
from muster.client.aws.reported import Execution
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Plan
from muster.local.faults import CapacityError
from tests.plugins.stack import ROOT
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to

PASS = {"entrypoint": ["python", "-c", "pass"]}


def function_log(stack, function, since):
    """The lines that a function has logged, in any of its streams."""
    settings = stack.functions.get_function_configuration(FunctionName=stack.function_name(function))
    pages = stack.cloud.client("logs").get_paginator("filter_log_events")
    found = pages.paginate(logGroupName=settings["LoggingConfig"]["LogGroup"], startTime=int(since.timestamp() * 1000))
    return [event["message"] for page in found for event in page["events"]]


def test_a_broken_spec_is_refused_with_all_its_problems_before_anything_exists(stack):
    run = stack.start({"replicas": "4", "trainer": "no colon", "instanse_type": "ml.m5.large"})
    ended = run.wait()
    assert (ended["status"], ended["error"]) == ("FAILED", "Muster.SpecError")
    for problem in (
        "replicas: found '4'; write a whole number",
        "trainer: found 'no colon'; allowed: package.module:function",
        "instanse_type: unknown field; did you mean instance_type?",
    ):
        assert problem in ended["cause"]
    assert "Traceback" not in ended["cause"]
    assert run.document(run.layout.plan) is None
    assert stack.calls("CreateTrainingJob") == 0


def test_an_input_that_is_no_spec_at_all_is_refused_in_plain_words(stack):
    ended = stack.start(["replicas"]).wait()
    assert "write a mapping" in ended["cause"]


def test_a_name_that_the_execution_does_not_have_is_refused(stack):
    ended = stack.start({**PASS, "replicas": 1, "name": "mine"}, name="theirs").wait()
    assert "name: found 'mine' in an execution named 'theirs'" in ended["cause"]


def test_a_succeeded_execution_tells_verdict_reason_figures_and_places(stack):
    run = stack.start({**PASS, "replicas": 12})
    ended = run.wait()
    assert ended["status"] == "SUCCEEDED"
    output = json.loads(ended["output"])
    assert (output["verdict"], output["reason"]) == ("succeeded", "12 of 12 replicas succeeded")
    assert (output["replicas"], output["attempts"], output["reruns"]) == (12, 12, 0)
    assert output["result"] == f"s3://{stack.bucket}/{run.layout.result}"
    assert len(run.statuses()) == 12
    assert output["page"] == f"s3://{stack.bucket}/{run.layout.page}"
    assert b'<dd id="verdict"' in (run.document(run.layout.page) or b"")
    assert output["links"]["page"].endswith(f"/s3/object/{stack.bucket}?region=us-east-1&prefix={run.layout.page}")
    assert output["links"]["execution"].endswith(run.execution_arn)


def test_a_failed_execution_tells_why_and_where_to_look(stack):
    program = "import os; print('loss=0.25', os.environ['API_KEY']); raise ValueError('no data')"
    run = stack.start(
        {
            "replicas": 1,
            "entrypoint": ["python", "-c", program],
            "environment": {"API_KEY": "sk-0123456789"},
            "metric_definitions": [{"name": "loss", "regex": "loss=([0-9.]+)"}],
            "keep_alive_period_in_seconds": 600,
        }
    )
    ended = run.wait()
    assert (ended["status"], ended["error"]) == ("FAILED", "Muster.RunFailed")
    why, _, where = ended["cause"].partition("\n\n")
    assert why == run.result().reason
    assert "replica 0 was lost: its retry budget for user-code (0 reruns) is used up" in why
    log = f"muster logs {run.name} --rank 0 --attempt 1"
    for place in (run.layout.page, run.layout.result, stack.prefix + "-" + run.name, log, f"muster rerun {run.name}"):
        assert place in where
    [attempt] = run.result().replicas[0].attempts
    assert attempt.last_lines[0] == "loss=0.25 (API_KEY, not shown)"
    assert attempt.last_lines[-1] == "ValueError: no data"
    assert b"ValueError: no data" in (run.document(run.layout.page) or b"")
    details = attempt.details
    assert [(metric.name, metric.value) for metric in details.metrics] == [("loss", 0.25)]
    assert details.warm_pool.state == "Available"


def test_an_error_of_muster_itself_is_told_as_such(stack):
    """The state into which every other one leads whose function has failed after all retries, by itself."""
    written = json.loads((ROOT / "statemachine" / "run.asl.json").read_text(encoding="utf-8"))
    states = {"Muster failed": written["States"]["Muster failed"]}
    role = stack.stepfunctions.describe_state_machine(stateMachineArn=stack.machine)["roleArn"]
    machine = stack.stepfunctions.create_state_machine(
        name="muster-failed", definition=json.dumps({"StartAt": "Muster failed", "States": states}), roleArn=role
    )["stateMachineArn"]
    cause = json.dumps({"errorMessage": "no bucket", "stackTrace": ["line 1"]})

    def failed(failure):
        started = stack.stepfunctions.start_execution(stateMachineArn=machine, input=json.dumps(failure))
        arn = started["executionArn"]
        wait_until("its end", lambda: stack.stepfunctions.describe_execution(executionArn=arn)["status"] != "RUNNING")
        return stack.stepfunctions.describe_execution(executionArn=arn)

    # A timeout has no cause.
    assert failed({"Error": "States.Timeout"})["cause"].endswith("is cleared up. ")
    ended = failed({"Error": "NoSuchBucket", "Cause": cause})
    assert ended["error"] == "NoSuchBucket"
    assert ended["cause"].startswith(
        "Muster itself has failed, not the training. The log groups of its functions say more"
    )
    assert Execution.from_description(ended).cause.endswith("is cleared up. no bucket")


def test_the_example_of_the_console_runs_as_it_is(stack):
    run = stack.start(json.loads(stack.outputs["ExampleInput"]))
    assert run.wait()["status"] == "SUCCEEDED"
    events = stack.cloud.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=run.job(1)
    )["events"]
    assert f"Hello from replica 1 of the run {run.name}" in [event["message"].strip() for event in events]


def test_an_execution_name_that_no_job_can_have_still_runs(stack):
    run = stack.start({**PASS, "replicas": 1}, name="Nightly_run.of-the(team)+" + "x" * 50)
    ended = run.wait()
    assert ended["status"] == "SUCCEEDED"
    assert json.loads(ended["output"])["run"].startswith("Nightly-run-of-the-team-")


def test_arguments_of_200_kib_reach_the_replica(stack):
    text = "x" * 200_000
    run = stack.start({"replicas": 1, "trainer": "no_such_package.training:train", "kwargs": {"text": text}})
    ended = run.wait()
    # The module is looked for after the document was read: the arguments were no obstacle.
    assert "no_such_package" in ended["cause"]
    assert len(json.loads(run.document(run.layout.document))["kwargs"]["text"]) == 200_000


def test_a_module_that_does_not_exist_is_told_where_the_run_is_told(stack):
    run = stack.start({"replicas": 1, "trainer": "no_such_package.training:train"})
    ended = run.wait()
    assert ended["status"] == "FAILED"
    assert "no_such_package" in ended["cause"]
    [attempt] = run.result().replicas[0].attempts
    assert attempt.failure_class is FailureClass.INVALID_REQUEST
    assert "no_such_package" in attempt.reason


def test_a_rerun_waits_as_long_as_its_budget_says(stack):
    stack.cloud.faults.add(CapacityError(job="*-r0-a1"))
    budget = {"capacity": {"max_reruns": 1, "delay_seconds": 3}}
    run = stack.start({**PASS, "replicas": 1, "reruns": budget})
    assert run.wait()["status"] == "SUCCEEDED"
    first, second = run.result().replicas[0].attempts
    waited = datetime.fromisoformat(second.launched_at) - datetime.fromisoformat(first.ended_at)
    assert waited.total_seconds() >= 3

    def measured():
        # What the alarm for reruns reads: a line in the log of the function that has decided, which may be either.
        lines = [
            line for name in ("React", "Attempt") for line in function_log(stack, name, run.describe()["startDate"])
        ]
        found = [json.loads(line) for line in lines if "RerunsWithinHour" in line]
        return {(line["service"], *line["RerunsWithinHour"]) for line in found}

    wait_until("the measure", lambda: ("muster", 1.0) in measured())


def test_a_rerun_that_is_asked_for_too_early_is_not_launched(stack):
    stack.cloud.faults.add(CapacityError(job="*-r0-a1"))
    budget = {"capacity": {"max_reruns": 1, "delay_seconds": 600}}
    run = stack.start({**PASS, "replicas": 1, "reruns": budget})
    wait_until("the decision", lambda: (record := run.record()) and record.decision)
    request = {"run": run.name, "rank": 0, "attempt": 2, "token": "any", "entered_at": "2100-01-01T00:00:00.000Z"}
    assert stack.invoke("Attempt", request) == {"launch": "too early for the rerun"}
    assert run.statuses() == {"r0-a1": "Failed"}


def test_what_a_spec_leaves_out_is_the_stacks_and_a_dry_run_shows_just_that(stack, monkeypatch):
    turn_to(monkeypatch, stack.cloud)
    elsewhere = {"subnets": ["subnet-9"], "security_group_ids": ["sg-9"]}
    overrides = {"1": {"instance_type": "ml.m5.large", "spot": True, "vpc_config": elsewhere}}
    spec = {**PASS, "replicas": 2, "tags": {"stage": "live"}, "overrides": overrides}
    dry = Muster().plan(spec)
    # The embedded cloud has no Price List API.
    usd = SHIPPED_PRICES.usd_per_hour
    assert (dry.cost.prices.as_of, dry.cost.per_hour) == (
        SHIPPED_PRICES.as_of,
        usd["ml.c5.xlarge"] + usd["ml.m5.large"],
    )
    assert "the Price List API did not answer" in dry.remarks[0]
    run = stack.start(spec)
    assert run.wait()["status"] == "SUCCEEDED"
    plan = json.loads(run.document(run.layout.plan))["spec"]
    assert (plan["instance_type"], plan["vpc_config"]["subnets"]) == ("ml.c5.xlarge", ["subnet-1", "subnet-2"])
    job = stack.sagemaker.describe_training_job(TrainingJobName=run.job())
    assert job["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1", "subnet-2"]}
    assert job["ResourceConfig"]["InstanceType"] == "ml.c5.xlarge"
    assert job["ResourceConfig"]["VolumeKmsKeyId"] == job["OutputDataConfig"]["KmsKeyId"] == plan["volume_kms_key_id"]
    tags = {item["Key"]: item["Value"] for item in stack.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]}
    assert (tags["team"], tags["stage"]) == ("research", "live")
    other = stack.sagemaker.describe_training_job(TrainingJobName=run.job(1))
    assert (other["ResourceConfig"]["InstanceType"], other["EnableManagedSpotTraining"]) == ("ml.m5.large", True)
    assert other["VpcConfig"]["Subnets"] == ["subnet-9"]
    # All that a launch decides is its name, and with it the plan's digest.
    shown, _ = dry.requests
    body = json.dumps(shown).replace("<run>", run.name)
    sent = training_job_request(Plan.from_json(run.document(run.layout.plan), "plan"), 0, 1)
    differing = {name for name, value in json.loads(body).items() if sent[name] != value}
    assert differing == {"Tags"}
    assert {item["Key"] for item in shown["Tags"]} == {item["Key"] for item in sent["Tags"]}
