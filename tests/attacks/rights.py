"""With the credentials of a job or a pod: everything of other runs and of the stack, by the policies that it has."""

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

from muster.contract.run.plan import Plan
from muster.options.hyperpod.contract.session_policy import session_policy
from tests.attacks.attempts import Tries, Try
from tests.memory.harness import CLUSTER_SPEC, ControlHarness
from tests.support.template import Template, matches

BUCKET = "arn:aws:s3:::BUCKET"
STREAMS = "arn:aws:logs:REGION:ACCOUNT:log-group:/aws/sagemaker/TrainingJobs:log-stream:"
DIGEST = "0123456789abcdef" * 4
# The attacker's run, and the victim's: names that begin, go on or end as the other.
NAMES = (
    *(("attacker", name) for name in ("victim", "attacker-run", "attacker-r1", "attacker2", "attacke", "x-attacker")),
    *(("a", name) for name in ("a-r1", "a-r0-a1", "a-r", "a-r0-r1-a1", "ab", "b")),
    *(("attacker-run", "attacker"), ("a-r0-a1", "a"), ("a-r1", "a")),
)
OBJECT_ACTIONS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
OF_A_RUN = (
    *("rendezvous/{}/claims/0", "rendezvous/{}/commits/00000001.json", "rendezvous/{}/r0/x"),
    *("checkpoints/{}/r0/step-1", "output/{}/muster-x-r0-a1/output/model.tar.gz", "output/{}/model-00000001.json"),
    *("runs/{}/document.json", "control/{}/plan.json", "control/{}/replicas/0.json", "control/{}/stopping.json"),
    *("control/{}/result.json", "control/{}/lost/0", "notices/{}/missing-r0-1.json", "notices/{}/end-r0-a1-x.json"),
)
OF_THE_STACK = (
    *(
        "queue/queue.json",
        "ended/2026-01-01.json",
        "inbox/run.yaml",
        f"recipes/sources-{DIGEST}.json",
        "x",
        "control/x",
    ),
)
WRITTEN_ELSEWHERE = (f"source/{DIGEST}.tar.gz", f"packages/{DIGEST}.zip", f"recipes/{DIGEST}/recipe.yaml")
ELSEWHERE = (
    ("states:SendTaskSuccess", "*"),
    ("states:StartExecution", "arn:aws:states:REGION:ACCOUNT:stateMachine:Workflow"),
    ("sagemaker:CreateTrainingJob", "arn:aws:sagemaker:REGION:ACCOUNT:training-job/muster-a-r0-a1"),
    ("sagemaker:StopTrainingJob", "arn:aws:sagemaker:REGION:ACCOUNT:training-job/muster-victim-r0-a1"),
    ("sagemaker:DescribeTrainingJob", "arn:aws:sagemaker:REGION:ACCOUNT:training-job/muster-victim-r0-a1"),
    ("iam:PassRole", "arn:aws:iam::ACCOUNT:role/Replica"),
    ("sts:AssumeRole", "arn:aws:iam::ACCOUNT:role/Launcher"),
    ("lambda:InvokeFunction", "arn:aws:lambda:REGION:ACCOUNT:function:Stop"),
    ("events:PutEvents", "arn:aws:events:REGION:ACCOUNT:event-bus/Events"),
    ("sns:Publish", "arn:aws:sns:REGION:ACCOUNT:Notices"),
    ("sqs:ReceiveMessage", "arn:aws:sqs:REGION:ACCOUNT:DeadLetters"),
    ("eks:CreatePodIdentityAssociation", "arn:aws:eks:REGION:ACCOUNT:cluster/research-eks"),
    ("s3:PutBucketPolicy", BUCKET),
    ("s3:ListBucketVersions", BUCKET),
    ("cloudwatch:PutMetricData", "*"),
)


def of_jobs(template: Template) -> Tries:
    """A training job: the sessions of the replica role with the tags of its run."""
    for attacker, victim in NAMES:
        tags = {"aws:PrincipalTag/MusterRun": attacker, "aws:PrincipalTag/MusterLineage": attacker}
        for label, keys in (
            ("", tags),
            ("no tags", {}),
            ("a model", {**tags, "aws:PrincipalTag/MusterModel": "m/model"}),
        ):
            who = f"{attacker} ({label}) at {victim}"
            for action, key in product(OBJECT_ACTIONS, [one.format(victim) for one in OF_A_RUN] + [*OF_THE_STACK]):
                yield Try(f"{who}: {action} {key}", template.allows("Replica", action, f"{BUCKET}/{key}", keys))
            for prefix in _listed(victim):
                seen = template.allows("Replica", "s3:ListBucket", BUCKET, {**keys, "s3:prefix": prefix})
                yield Try(f"{who}: lists {prefix!r}", seen)
            for action, key in product(OBJECT_ACTIONS[1:], WRITTEN_ELSEWHERE):
                yield Try(f"{who}: {action} {key}", template.allows("Replica", action, f"{BUCKET}/{key}", keys))
            for action, resource in ELSEWHERE:
                yield Try(f"{who}: {action} {resource}", template.allows("Replica", action, resource, keys))
            for action, stream in product(("logs:CreateLogStream", "logs:PutLogEvents"), _streams(victim)):
                yield Try(f"{who}: {action} {stream}", template.allows("Replica", action, f"{STREAMS}{stream}", keys))
        own = f"{BUCKET}/rendezvous/{attacker}/x"
        yield Try(f"{attacker}: own rendezvous", template.allows("Replica", "s3:PutObject", own, tags), is_own=True)
        stream = f"{STREAMS}muster-{attacker}-r0-a1/algo-1-1700000000"
        yield Try(f"{attacker}: own log", template.allows("Replica", "logs:PutLogEvents", stream, tags), is_own=True)


def _listed(run: str) -> tuple[str, ...]:
    folders = ("rendezvous", "checkpoints", "output", "runs", "control", "notices")
    whole = (f"{folder}/" for folder in (*folders, "queue", "ended", "inbox", "source", "packages", "recipes"))
    return ("", *whole, *(f"{folder}/{run}/" for folder in folders), f"source/{DIGEST[:63]}", "recipes/sources-")


def _streams(run: str) -> list[str]:
    jobs = [f"muster-{run}-r{rank}-a{attempt}" for rank, attempt in ((0, 1), (12, 300))]
    return [f"{job}{end}" for job in jobs for end in ("", "/", "/algo-1-1700000000", "/x")]


def of_pods(template: Template) -> Tries:
    """A pod: what both the role of pods and the session policy of its run allow."""
    with ControlHarness(clusters=True).installed() as harness:
        for attacker, victim in NAMES:
            plan = (
                harness.plan(attacker, **CLUSTER_SPEC).plan
                if attacker not in _planned(harness)
                else _plan(harness, attacker)
            )
            policy = json.loads(session_policy(plan).replace(f":::{plan.place.bucket}", ":::BUCKET"))

            def may(action: str, resource: str, policy: Any = policy, **context: str) -> bool:
                keys = {name.replace("_", ":"): value for name, value in context.items()}
                return _allows(policy, action, resource, keys) and template.allows("Pod", action, resource, keys)

            who = f"pod of {attacker} at {victim}"
            for action, key in product(OBJECT_ACTIONS, [one.format(victim) for one in OF_A_RUN] + [*OF_THE_STACK]):
                yield Try(f"{who}: {action} {key}", may(action, f"{BUCKET}/{key}"))
            for action, key in product(OBJECT_ACTIONS, WRITTEN_ELSEWHERE):
                yield Try(f"{who}: {action} {key}", may(action, f"{BUCKET}/{key}"))
            for prefix in _listed(victim):
                yield Try(f"{who}: lists {prefix!r}", may("s3:ListBucket", BUCKET, s3_prefix=prefix))
            for action, resource in ELSEWHERE:
                yield Try(f"{who}: {action} {resource}", may(action, resource))
            own = may("s3:PutObject", f"{BUCKET}/rendezvous/{attacker}/x")
            yield Try(f"pod of {attacker}: own rendezvous", own, is_own=True)


def _planned(harness: ControlHarness) -> set[str]:
    return {key.split("/")[1] for key in harness.cloud.s3.objects(harness.cloud.bucket) if key.startswith("control/")}


def _plan(harness: ControlHarness, run: str) -> Plan:
    return harness.plane.runs.require(run).plan


def _allows(policy: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Whether a session policy of allowing statements allows something."""
    for statement in policy["Statement"]:
        if not any(matches(action, pattern, ignore_case=True) for pattern in _texts(statement["Action"])):
            continue
        named = any(matches(resource, one) for one in _texts(statement.get("Resource", ())))
        outside = "NotResource" in statement and not any(matches(resource, one) for one in statement["NotResource"])
        likes = statement.get("Condition", {}).get("StringLike", {})
        fits = all(any(matches(context.get(key, ""), one) for one in _texts(wanted)) for key, wanted in likes.items())
        if (named or outside) and fits:
            return True
    return False


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
