"""From a client and from the inbox: specs that make the stack read, mount, or give rights to, what is another's."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from muster.contract.errors import MusterError
from muster.contract.layout import STACK_FOLDERS
from muster.contract.spec.replica_access import ReplicaAccess
from muster.control.aws.inbox import Inbox
from muster.control.plan import make_plan
from muster.control.start import Starter
from muster.options.hyperpod.contract.session_policy import session_policy
from tests.attacks.attempts import Tries, Try
from tests.memory.harness import CLUSTER, CLUSTER_SPEC, SPEC, ControlHarness

SECRET = "hunter2canary"
DIGEST = "a" * 64
VICTIM_KEYS = (
    *(f"{folder}/victim/{name}" for folder in STACK_FOLDERS for name in ("plan.json", "x.yaml", "x.tar.gz")),
    *(
        "queue/queue.json",
        f"recipes/sources-{DIGEST}.json",
        "own/../control/victim/plan.json",
        "./control/victim/plan.json",
    ),
    *("/control/victim/plan.json", "own//../control/victim/plan.json", "control/victim/plan.json/"),
)
PATTERNS = ("*", "?", "$", "${aws:PrincipalTag/MusterRun}", "**", "a*b", "?" * 64)
ARCHIVES = (
    *(f"{folder}/{mark}.tar.gz" for folder, mark in product(STACK_FOLDERS, PATTERNS)),
    *(f"source/{mark}{DIGEST[1:]}.tar.gz" for mark in ("*", "?", "A", "g", "/")),
    *(f"source/{DIGEST}{end}" for end in (".tar.gz.tar.gz", "/x.tar.gz", "*.tar.gz", "0.tar.gz", "/../x.tar.gz")),
    *(key for key in VICTIM_KEYS if key.endswith(".tar.gz")),
)
ACCOUNTS = ("muster-victim", "muster-", "muster-attacker", "default", "kube-system", "admin", "*", "muster-victim/x")
PATHS = (
    *(
        "/",
        "/etc",
        "/var/lib/kubelet",
        "/root/.ssh",
        "/proc",
        "/var/run/docker.sock",
        "/mnt",
        "/mnt/data/link",
        "/mnt/dat",
    ),
    *("/mnt/data/..", "/mnt/data/../../etc", "//", "/mnt//data/x", "/mnt/data2"),
)
NAMES = ("*", "victim*", "vic?im", "${aws:x}", "../victim", "victim/", "victim/x", "", "a" * 200, "victim\n")


def hostile() -> dict[str, dict[str, Any]]:
    """Fields of specs, by what they try. Each must be refused."""
    found: dict[str, dict[str, Any]] = {}
    for key, field in product(VICTIM_KEYS, ("file", "base")):
        found[f"recipe.{field} {key}"] = {"recipe": {field: f"s3://bucket/{key}"}}
    for key in VICTIM_KEYS:
        recipe = {"base": "s3://bucket/own/recipe.yaml", "override_spec": f"s3://bucket/{key}"}
        found[f"recipe.override_spec {key}"] = {"recipe": recipe}
    for key in ARCHIVES:
        found[f"source_dir {key}"] = {"source_dir": f"s3://bucket/{key}"}
    for account in ACCOUNTS:
        found[f"service account {account}"] = {
            **CLUSTER_SPEC,
            "hyperpod": {"cluster": "hyper", "service_account": account},
        }
    for path in PATHS:
        volume = {"name": "v", "mount_path": "/v", "host_path": path}
        found[f"host path {path}"] = {**CLUSTER_SPEC, "hyperpod": {"cluster": "hyper", "volumes": [volume]}}
    for name, field in product(NAMES, ("resume_from", "model")):
        found[f"{field} {name!r}"] = {field: name if field == "resume_from" else {"run": name}}
    for namespace in ("kube-system", "default", "*", "team-a/../x"):
        found[f"namespace {namespace}"] = {**CLUSTER_SPEC, "hyperpod": {"cluster": "hyper", "namespace": namespace}}
    for role in ("arn:aws:iam::123456789012:role/admin", "arn:aws:iam::999999999999:role/x"):
        found[f"role {role}"] = {"role_arn": role}
    return found


def _prepared(harness: ControlHarness) -> None:
    cluster = CLUSTER.model_copy(update={"service_accounts": ("mine",), "host_paths": ("/mnt/data",)})
    listed = {"clusters": (cluster,), "access": ReplicaAccess(data=[])}
    defaults = harness.deployment.defaults.model_copy(update=listed)
    harness.deployment = replace(harness.deployment, defaults=defaults)
    store = harness.plane.store
    store.create("own/recipe.yaml", b"run: {model_type: verl}\n")
    harness.plan("victim", environment={"TOKEN": SECRET})
    for key in VICTIM_KEYS:
        store.create(key, f"token: {SECRET}\n".encode())


def _shown(harness: ControlHarness) -> str:
    """Everything that others than the victim can read."""
    objects = harness.cloud.s3.objects("bucket").items()
    texts = [one.body.decode("latin-1") for key, one in objects if key.startswith(("runs/attack", "control/attack"))]
    return "".join([*texts, *(str(entry) for entry in harness.cloud.events.entries)])


def of_clients() -> Tries:
    """As the input of an execution, in a stack whose settings list one account and one path."""
    with ControlHarness(clusters=True).installed() as harness:
        _prepared(harness)
        yield from _tries(harness, hostile())
        own = {"source_dir": f"s3://bucket/source/{DIGEST}.tar.gz"}
        harness.plane.store.create(f"source/{DIGEST}.tar.gz", b"code")
        yield Try("an archive of its own", _is_planned(harness, "own", own) is None, is_own=True)


def of_the_inbox() -> Tries:
    """As an object in the inbox, whose execution is planned."""
    with ControlHarness(clusters=True).installed() as harness:
        _prepared(harness)
        starter = Starter(harness.executions, Inbox(harness.plane.store), harness.plane.bus)
        for index, (what, fields) in enumerate(hostile().items()):
            key, body = f"inbox/{index}.yaml", json.dumps({**SPEC, **fields}).encode()
            etag = harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=body)["ETag"]
            starter.from_inbox(key, etag.strip('"'))
            said = _is_planned(harness, f"attack-{index}", fields)
            yield Try(f"inbox: {what}", said is None or SECRET in said)
        texts = [
            one.body.decode("latin-1")
            for key, one in harness.cloud.s3.objects("bucket").items()
            if key.endswith(".error.txt")
        ]
        yield Try("inbox: what is told of it", any(SECRET in text for text in texts))
        yield Try("inbox: what is seen of it", SECRET in _shown(harness))


def _tries(harness: ControlHarness, specs: Mapping[str, dict[str, Any]]) -> Tries:
    for index, (what, fields) in enumerate(specs.items()):
        said = _is_planned(harness, f"attack-{index}", fields)
        yield Try(f"client: {what}", said is None or SECRET in said)
    yield Try("client: what is seen of it", SECRET in _shown(harness))


def _is_planned(harness: ControlHarness, run: str, fields: dict[str, Any]) -> str | None:
    """None, or why not. A planned run's policies are built, too."""
    try:
        plan = make_plan(harness.plane, harness.deployment, harness.plan_request(run, **fields))
        session_policy(plan)
    except MusterError as error:
        return str(error)
    return None
