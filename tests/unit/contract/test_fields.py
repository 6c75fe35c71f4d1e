"""Fields with rules of their own: metrics, checkpoints, hooks, exact prefixes, roles, and names that others use."""

import dataclasses
import json
import re
from typing import Any

from muster.contract.run.job_request import REPLICA_ENTRYPOINT
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.algorithm_settings import SETTINGS
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.contract.spec.hook import HOOKED, OWN_LOOP, hooked_program
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.hints import FORMER
from muster.contract.training.source_delivery import BOOTSTRAP
from muster.replica.algorithms.algorithm import Algorithm
from tests.support.job_requests import plan_of, requests
from tests.support.refused_specs import refusal, refused_fields
from tests.support.torchx_options import OPTIONS

BASE: dict[str, Any] = {"replicas": 2, "trainer": "m:f", "image": "image:1"}
PROGRAM: dict[str, Any] = {"trainer": None, "entrypoint": ["python", "train.py", "--epochs", "3"]}
HOOKED_SPEC = {**PROGRAM, "hook": "huggingface", "kwargs": {"sync_every": 100, "momentum": 0.5}}
EXACT: dict[str, Any] = {"checkpoint_uri_exact": True}
ROLE = "arn:aws:iam::123456789012:role/path/train"


def spec(**fields: Any) -> Spec:
    return parse_spec({name: value for name, value in {**BASE, **fields}.items() if value is not None})


def answers(**fields: Any) -> dict[str, str]:
    return refused_fields({**BASE, **fields})


def prefix(uri: str) -> dict[str, Any]:
    return {"checkpoint_config": {"s3_uri": uri}}


# --- what the replicas and their jobs get ------------------------------------------------------------


def test_the_replicas_read_where_metrics_go_and_how_often_they_save_also_from_a_newer_version() -> None:
    sinks = {
        "tensorboard": True,
        "mlflow": {"tracking_uri": "https://mlflow.example.org:5000/base", "experiment": "gpt"},
        "wandb": {"project": "gpt", "entity": "team", "mode": "online"},
        "cloudwatch": ["loss", "tokens_per_second"],
    }
    for checkpoints in ({"s3_every": 1}, {"memory_every": 7, "s3_every": 7}):
        stored = json.loads(RunDocument.of(plan_of(spec(metrics=sinks, checkpoints=checkpoints))).to_json())
        stored["checkpoints"]["tape_every"] = 1_000
        stored["metrics"] |= {"comet": {"project": "gpt"}}
        stored["metrics"]["wandb"] |= {"notes": "new"}
        document = RunDocument.from_json(json.dumps(stored), "run.json")
        assert document.metrics.model_dump() == sinks
        assert document.checkpoints == CheckpointTiers.model_validate(checkpoints)


def test_metrics_for_cloudwatch_become_metric_definitions_beside_the_users_own() -> None:
    own = {"name": "own", "regex": "own: ([0-9.]+)"}
    [request, *_] = requests(spec(metrics={"cloudwatch": ["loss", "eval/loss"]}, metric_definitions=[own]))
    found = request["AlgorithmSpecification"]["MetricDefinitions"]
    assert [one["Name"] for one in found] == ["own", "loss", "eval/loss"]
    for line, loss, eval_loss in (
        ("loss=0.5 eval/loss=0.7", "0.5", "0.7"),
        ("[2.5] loss=1e-05", "1e-05", None),
        ("accuracy=0.9 loss=nan", "nan", None),
        ("train_loss=0.7", None, None),
    ):
        hits = [re.search(one["Regex"], line) for one in found[1:]]
        assert [hit and hit[1] for hit in hits] == [loss, eval_loss], line


def test_the_replica_runs_a_hooked_program() -> None:
    hooked = spec(**HOOKED_SPEC, arguments=["--seed", "1"], on_early_finish="stop")
    algorithm = requests(hooked)[1]["AlgorithmSpecification"]
    assert algorithm["ContainerEntrypoint"] == REPLICA_ENTRYPOINT
    assert "ContainerArguments" not in algorithm
    document = RunDocument.of(plan_of(hooked))
    assert document.trainer == HOOKED
    assert document.kwargs == {
        "library": "huggingface",
        "program": ["train.py", "--epochs", "3", "--seed", "1"],
        "algorithm": {"sync_every": 100, "momentum": 0.5},
    }
    delivered = requests(spec(**HOOKED_SPEC, source_dir="s3://bucket/source/code.tar.gz"))[0]
    assert delivered["AlgorithmSpecification"]["ContainerEntrypoint"] == list(BOOTSTRAP)
    assert delivered["AlgorithmSpecification"]["ContainerArguments"] == ["muster"]


def test_nothing_can_be_appended_to_a_program_that_is_delivered() -> None:
    own = {"trainer": None, "entrypoint": ["python", "train.py"], "source_dir": "s3://bucket/source/code.tar.gz"}
    for arguments in ([], ["--seed", "1"]):
        algorithm = requests(spec(**own, arguments=arguments))[0]["AlgorithmSpecification"]
        whole = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
        assert whole == [*BOOTSTRAP, "muster", "python", "train.py", *arguments]


def test_a_python_program_can_be_hooked() -> None:
    for words, program in (
        ("python train.py", "train.py"),
        ("/opt/conda/bin/python3.12 -u train.py -m x", "train.py -m x"),
        ("python3 -m recipes.sft --lr 1", "-m recipes.sft --lr 1"),
    ):
        assert hooked_program(words.split(), []) == program.split(), words
    for words in ("torchrun train.py", "bash train.sh", "python", "python -c print()", "python -m"):
        assert hooked_program(words.split(), []) is None, words


def test_the_settings_of_a_hook_are_those_of_the_algorithm() -> None:
    kinds = {field.name: field.type for field in dataclasses.fields(Algorithm)}
    assert {name: kind.__name__ for name, kind in SETTINGS.items()} == kinds


def test_an_exact_checkpoint_prefix_belongs_to_one_replica() -> None:
    for fields, found in (
        ({"replicas": 1, **EXACT, **prefix("s3://bucket/exact")}, ["s3://bucket/exact"]),
        ({**EXACT, **prefix("s3://bucket/r{rank}/")}, ["s3://bucket/r0/", "s3://bucket/r1/"]),
        ({"replicas": 1, **prefix("s3://bucket/all")}, ["s3://bucket/all/run/r0/"]),
    ):
        assert [one["CheckpointConfig"]["S3Uri"] for one in requests(spec(**PROGRAM, **fields))] == found, fields


def test_a_role_has_an_arn_or_a_name() -> None:
    for role, named in (("train_1", "train_1"), (ROLE, None), (None, None)):
        assert spec(role_arn=role).named_role == named, role


# --- what is refused ---------------------------------------------------------------------------------

# The fields, then the field of each problem with a part of what is said of it.
REFUSED: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"checkpoints": {}}, {"checkpoints": "neither memory_every nor s3_every"}),
    ({"checkpoints": {"memory_every": 0}}, {"checkpoints.memory_every": "found 0; at least 1"}),
    ({"checkpoints": {"s3_every": 1_000_001}}, {"checkpoints.s3_every": "found 1000001; at most 1,000,000"}),
    (
        {"checkpoints": {"memory_every": 20, "s3_every": 10}},
        {"checkpoints.s3_every": "found 10; at least memory_every (20)"},
    ),
    ({"checkpoints": {"memory_evry": 20}}, {"checkpoints.memory_evry": "memory_every"}),
    # Nothing counts the steps of a program, or of a loop of its own.
    ({**PROGRAM, "checkpoints": {"memory_every": 10}}, {"checkpoints": "steps are counted"}),
    (
        {"trainer": OWN_LOOP, "kwargs": {"trainer": "m:f"}, "checkpoints": {"memory_every": 10}},
        {"checkpoints": "steps are counted"},
    ),
    ({"metrics": {"wandb": {"project": "a/b"}}}, {"metrics.wandb.project": "a/b"}),
    ({"metrics": {"wandb": {"project": "gpt", "api_key": "0123"}}}, {"metrics.wandb.api_key": "unknown field"}),
    ({"metrics": {"wandb": {"project": "gpt", "mode": "later"}}}, {"metrics.wandb.mode": "later"}),
    ({"metrics": {"cloudwatch": ["0loss"]}}, {"metrics.cloudwatch.0": "0loss"}),
    ({"metrics": {"cloudwatch": [f"m{number}" for number in range(41)]}}, {"metrics.cloudwatch": "40"}),
    ({"metrics": {"tensorboard": {"folder": "events"}}}, {"metrics.tensorboard": ""}),
    ({**PROGRAM, "metrics": {"tensorboard": True}}, {"metrics": "without trainer"}),
    # An address is one of a server, and has no password.
    *(
        ({"metrics": {"mlflow": {"tracking_uri": uri}}}, {"metrics.mlflow.tracking_uri": "without a password"})
        for uri in ("https://user:hunter2@mlflow.example.org", "sqlite:///runs.db", "/mlruns", "arn:aws:s3:::bucket")
    ),
    ({**HOOKED_SPEC, "trainer": "m:f", "entrypoint": None}, {"hook": "together with trainer"}),
    ({**HOOKED_SPEC, "entrypoint": None}, {"hook": "without entrypoint", "trainer": ""}),
    ({**HOOKED_SPEC, "entrypoint": ["torchrun", "train.py"]}, {"entrypoint": "found torchrun train.py; with hook ["}),
    (
        {**HOOKED_SPEC, "kwargs": {"sync_evry": 5, "momentum": True}},
        {
            "kwargs.sync_every": "",
            "kwargs.sync_evry": "did you mean sync_every?",
            "kwargs.momentum": "found True; a number; correct it",
        },
    ),
    ({**PROGRAM, "hook": "keras"}, {"hook": "keras"}),
    *(
        ({"watch": {"divergence": {field: value}}}, {f"watch.divergence.{field}": str(value)})
        for field, value in {"cosine": 1.0, "factor": 1.5, "rounds": 0, "then": "abort"}.items()
    ),
    ({"watch": {"divergence": {"cosin": 0.1}}}, {"watch.divergence.cosin": "did you mean cosine?"}),
    (
        {"rendezvous": {"min_participants": 2}, "replicas": 2, "watch": {"divergence": {"then": "exclude"}}},
        {"watch.divergence.then": "a round needs the contributions of all 2 replicas"},
    ),
    # Options of the former schedulers and of HyperPod's command line are answered with their names here.
    ({"training_image": "i"}, {"training_image": "unknown field; its name here is image"}),
    *(({"role_arn": role}, {"role_arn": "found"}) for role in ("path/train", "two words", "x" * 65, "")),
]


def test_each_problem_is_named_with_what_is_allowed() -> None:
    for fields, expected in REFUSED:
        found = answers(**fields)
        assert found.keys() == expected.keys(), (fields, found)
        assert [field for field, words in expected.items() if words not in found[field]] == [], (expected, found)


def test_one_metric_has_one_definition_and_all_of_them_have_a_limit() -> None:
    own = [{"name": "loss", "regex": "x"}, *({"name": f"m{number}", "regex": "x"} for number in range(38))]
    twice, many = refusal({**BASE, "metrics": {"cloudwatch": ["loss", "accuracy"]}, "metric_definitions": own}).problems
    assert "'loss' is there 2 times" in str(twice)
    assert "found 41 metrics; SageMaker allows 40" in str(many)


def test_an_exact_prefix_that_replicas_would_share_is_refused() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        (EXACT, "true without a prefix"),
        ({**EXACT, **prefix("s3://bucket/all/")}, "a prefix that contains {rank}/"),
        ({**EXACT, **prefix("s3://bucket/r{rank}")}, "a prefix that contains {rank}/"),
        (prefix("s3://bucket/r{rank}/"), "is not filled in; set checkpoint_uri_exact"),
    ]
    for fields, words in rows:
        (said,) = answers(**PROGRAM, **fields).values()
        assert words in said, (fields, said)


def test_an_option_of_the_former_schedulers_is_a_field_or_answered_with_it() -> None:
    for name in {*OPTIONS, *FORMER} - {*Spec.model_fields, "quiet"}:
        text = answers(**{name: "x"})[name]
        assert text.startswith("unknown field; "), (name, text)
        assert any(field in text for field in Spec.model_fields), text
