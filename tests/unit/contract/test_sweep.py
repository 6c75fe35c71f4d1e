"""`sweep`: each rank has its own values, documents and rendezvous; what cannot be swept is refused, all at once."""

from typing import Any

from muster.contract.names import APART_MAX
from muster.contract.run.job_request import training_job_request
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.policies import OnReplicaFailure
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.sweep_values import best_rank, short_names, value_text, values_of
from tests.support.job_requests import plan_of
from tests.support.refused_specs import refusal

RATES = [0.1, 0.2, 0.4]
SWEEP: dict[str, Any] = {
    "replicas": 3,
    "trainer": "training:train",
    "kwargs": {"rounds": 5, "optimizer": {"name": "adamw", "lr": 0.05}},
    "sweep": {"kwargs.optimizer.lr": RATES, "kwargs.seed": [1, 2, 3]},
}
PROGRAM: dict[str, Any] = {
    "replicas": 2,
    "entrypoint": ["python", "train.py"],
    "environment": {"SEED": "0", "MODE": "fast"},
    "hyper_parameters": {"model.lr": "1"},
    "sweep": {"environment.SEED": ["1", "2"], "hyper_parameters.model.lr": ["0.1", "0.2"]},
}


def refused(**changes: Any) -> list[str]:
    return [str(problem) for problem in refusal({**SWEEP, **changes}).problems]


def test_each_rank_has_its_own_environment_and_hyper_parameters() -> None:
    spec = parse_spec({**PROGRAM, "overrides": {"1": {"environment": {"SEED": "9", "MODE": "slow"}}}})
    plan = plan_of(spec)
    requests: list[Any] = [training_job_request(plan, rank, 1) for rank in range(2)]
    assert [request["HyperParameters"] for request in requests] == [{"model.lr": "0.1"}, {"model.lr": "0.2"}]
    found = [(request["Environment"]["SEED"], request["Environment"]["MODE"]) for request in requests]
    assert found == [("1", "fast"), ("2", "slow")]
    # A program reads one document, which says nothing of rounds.
    assert list(RunDocument.every(plan)) == ["runs/run/document.json"]
    assert not spec.trains_apart


def test_each_replica_trains_as_the_only_one_of_a_run() -> None:
    plan = plan_of(parse_spec(SWEEP))
    documents = RunDocument.every(plan)
    assert list(documents) == [f"runs/run/r{rank}/document.json" for rank in range(3)]
    for rank, (key, document) in enumerate(documents.items()):
        request: Any = training_job_request(plan, rank, 1)
        assert request["Environment"]["MUSTER_DOCUMENT"] == f"s3://bucket/{key}"
        assert request["Environment"]["MUSTER_RANK"] == str(rank)
        assert (document.replicas, document.min_participants, document.sweep_rank) == (1, 1, rank)
        assert document.member(rank) == 0
        assert document.rendezvous_uri == f"s3://bucket/rendezvous/run/r{rank}/"
        assert document.results_uri == f"s3://bucket/output/run/r{rank}/"
        assert document.kwargs["optimizer"]["lr"] == RATES[rank]
        assert document.run == document.rendezvous_name == "run"
    assert RunDocument.of(plan_of(parse_spec({**SWEEP, "sweep": {}}))).member(2) == 2


def test_the_loss_of_a_rank_does_not_end_the_others() -> None:
    spec = parse_spec(SWEEP)
    assert (spec.on_replica_failure, spec.quorum) == (OnReplicaFailure.CONTINUE, 1)
    assert parse_spec({**SWEEP, "min_replicas": 2}).quorum == 2
    strict = parse_spec({**SWEEP, "on_replica_failure": "terminate"})
    assert (strict.on_replica_failure, strict.quorum) == (OnReplicaFailure.TERMINATE, 3)
    assert parse_spec({**SWEEP, "sweep": {}}).quorum == 3


def test_values_that_differ_are_shown_once() -> None:
    sweep = {"training_config.lr": RATES, "kwargs.lr": RATES, "kwargs.steps": [1, 1, 2]}
    assert values_of(sweep, 2) == {"training_config.lr": 0.4, "kwargs.steps": 2}
    for value, text in (("a\nb", "a b"), (1e-05, "1e-05"), ([1, "ü"], '[1, "ü"]'), (None, "null"), (True, "true")):
        assert value_text(value) == text
    assert len(value_text("x" * 500)) == 60
    # Names are as short as they can be.
    names = ["training_config.optim.lr", "training_config.sched.lr", "kwargs.seed", "lr2"]
    assert list(short_names(names).values()) == ["optim.lr", "sched.lr", "seed", "lr2"]
    assert short_names(["lr", "kwargs.lr"]) == {"lr": "lr", "kwargs.lr": "kwargs.lr"}


def test_the_best_rank_is_known_where_the_metric_says_what_is_better() -> None:
    values = {0: 0.3, 1: 0.1, 2: float("nan"), 3: 0.9}
    for name, rank in (("train_loss", 1), ("eval_accuracy", 3), ("tokens", None), ("accuracy_error", None)):
        assert best_rank(name, values) == rank, name
    assert best_rank("loss", {0: 0.1, 1: 0.1}) is best_rank("loss", {0: 0.1}) is None


# The changes of SWEEP, and how the one problem begins.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sweep": {"kwargs.lr": [1, 2]}}, "sweep.kwargs.lr: found 2 values; replicas is 3;"),
    ({"sweep": {"rounds": [1, 2, 3]}}, "sweep.rounds: it is no field of the spec"),
    ({"sweep": {"kwargs.rounds.lr": [1, 2, 3]}}, "sweep.kwargs.rounds.lr: kwargs.rounds is no mapping"),
    (
        {"sweep": {"kwargs.optimizer": [{}, {}, {}], "kwargs.optimizer.lr": RATES}},
        "sweep.kwargs.optimizer.lr: it is a part of kwargs.optimizer",
    ),
    ({"sweep": {"kwargs.a..b": RATES}}, "sweep.kwargs.a..b: found 'kwargs.a..b';"),
    ({"sweep": {"environment.SEED": [1, 2, 3]}}, "sweep.environment.SEED: found a whole number for rank 0;"),
    ({"sweep": {"environment.MUSTER_RANK": ["1", "2", "3"]}}, "sweep.environment.MUSTER_RANK: this name is"),
    ({"sweep": {"environment.A B": ["1", "2", "3"]}}, "sweep.environment.A B: found 'A B'; a name that"),
    ({"sweep": {"hyper_parameters.lr": ["1", "2", "a\nb"]}}, "sweep.hyper_parameters.lr: found text for rank 2;"),
    ({"rendezvous": {"min_participants": 2}}, "rendezvous.min_participants: found 2; with sweep 1:"),
    ({"sweep": {"environment.HF_TOKEN": ["1", "2", "3"]}}, "sweep.environment.HF_TOKEN: this may be a secret"),
    ({"sweep": {"kwargs.hub.hf_token": ["1", "2", "3"]}}, "sweep.kwargs.hub.hf_token: this may be a secret"),
    ({"on_early_finish": "stop"}, "on_early_finish: stop is set together with sweep"),
    *(
        ({"watch": {rule: {"then": "exclude"}}}, f"watch.{rule}.then: exclude is set together with sweep")
        for rule in ("loss", "divergence")
    ),
    (
        {"replicas": APART_MAX + 1, "sweep": {"kwargs.seed": list(range(APART_MAX + 1))}},
        f"replicas: found {APART_MAX + 1}; at most {APART_MAX} in a sweep",
    ),
    *(({"sweep": sweep}, "sweep") for sweep in ({"": RATES}, {"kwargs.lr": []}, {"kwargs.lr": 3})),
]


def test_what_cannot_be_swept_is_refused() -> None:
    for changes, problem in REFUSED:
        (found,) = refused(**changes)
        assert found.startswith(problem), (problem, found)
    assert "did you mean kwargs.rounds?" in refused(sweep={"rounds": [1, 2, 3]})[0]
    # Kwargs need a trainer.
    problems = refusal({**PROGRAM, "sweep": {"kwargs.lr": [1, 2, 3], "lr": [1, 2]}}).problems
    assert [problem.field for problem in problems] == ["sweep.kwargs.lr", "sweep.kwargs.lr", "sweep.lr"]
    # A token of a text is no secret.
    for name in ("kwargs.eos_token", "kwargs.max_tokens", "kwargs.tokens"):
        assert parse_spec({**SWEEP, "sweep": {name: ["1", "2", "3"]}}).sweep, name
