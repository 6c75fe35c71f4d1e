"""What each family of recipes fills into a spec, and what it cannot do without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.recipe.expansion import expand, expansion
from muster.contract.recipe.families.detection import family_of
from muster.contract.recipe.families.instances import instance_types
from muster.contract.recipe.families.values import value_at
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.model_source import ModelSource, with_model

RECIPE_FILE = "/opt/ml/input/data/recipe/recipe.yaml"
ROLE = "arn:aws:iam::123456789012:role/distiller"
PACKAGE = "arn:aws:sagemaker:us-east-1:123456789012:model-package/nova/1"
GROUP = "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/nova"
LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:score"
NOVA = """
run: {{name: mine, model_type: 'amazon.nova-micro-v1:0:128k', model_name_or_path: {model}, replicas: 4}}
training_config: {{max_length: 8192}}
"""
SPEC: dict[str, Any] = {"replicas": 1, "image": "image:1", "instance_type": "ml.p5.48xlarge", "recipe": "r.yaml"}


def sources(text: str, **fields: Any) -> RecipeSources:
    specification = fields.pop("specification", None)
    if specification is not None:
        fields["override_spec"] = SourceText(place="r.json", text=json.dumps(specification))
    return RecipeSources(name="r", base=SourceText(place="r.yaml", text=text), **fields)


def expanded(text: str, document: dict[str, Any] = SPEC, **fields: Any) -> Spec:
    found = sources(text, **fields)
    result = expand(document, found)
    assert expand(result, found) == result
    return parse_spec(result)


def refused(text: str, document: dict[str, Any] = SPEC, **fields: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        expand(document, sources(text, **fields))
    return {problem.field: str(problem) for problem in caught.value.problems}


def channel(name: str, uri: str, **source: Any) -> dict[str, Any]:
    return {"channel_name": name, "data_source": {"s3_data_source": {"s3_uri": uri, **source}}}


# --- which family --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "document", "family"),
    [
        ({"run": {"model_type": "amazon.nova-lite", "model_name_or_path": ""}}, {}, "nova"),
        ({"run": {"model_type": "Amazon.Nova-Lite", "model_name_or_path": "x"}, "evaluation": {"a": 1}}, {}, "nova"),
        ({"run": {"model_type": "amazon.nova-lite"}}, {}, None),
        ({"training_config": {"distillation_data": "true"}}, {}, "nova"),
        ({"run": {"model_type": "llm_finetuning_aws"}, "training_config": {"a": 1}}, {}, "llmft"),
        ({"run": {"model_type": "VERL"}, "training_config": {"a": 1}, "trainer": {}}, {}, "llmft"),
        ({"run": {"model_type": "verl"}, "training_config": {}}, {}, None),
        ({"run": {"replicas": 1}, "evaluation": {"task": "mmlu"}}, {}, "evaluation"),
        ({"llm_as_judge": {"metrics": "Faithfulness"}}, {}, "evaluation"),
        ({"trainer": {"num_nodes": 1}, "evaluation": {"task": "mmlu"}}, {}, "general"),
        ({"trainer": {}}, {}, "general"),
        ({"lr": 0.1}, {}, None),
        ({"lr": 0.1}, {"entrypoint": ["python"]}, "general"),
        ({"lr": 0.1}, {"trainer": "a:b"}, "trainer"),
        ({"run": {"model_type": "verl"}, "training_config": {"a": 1}}, {"hook": "huggingface"}, "trainer"),
        ({"run": "text", "training_config": [1]}, {}, None),
    ],
)
def test_a_recipe_belongs_to_the_family_of_its_sections(recipe: Any, document: Any, family: str | None) -> None:
    assert family_of(recipe, document) == family


# --- Nova ----------------------------------------------------------------------------------------


def test_a_nova_model_is_named_in_a_hyperparameter() -> None:
    spec = expanded(NOVA.format(model="nova-micro/prod"))
    assert spec.hyper_parameters == {"base_model": "nova-micro/prod", "sagemaker_recipe_local_path": RECIPE_FILE}
    assert (spec.instance_count, spec.entrypoint, spec.model_package_config) == (4, None, None)


def test_a_nova_model_in_s3_has_another_hyperparameter() -> None:
    spec = expanded(NOVA.format(model="s3://escrow/checkpoint/step_4"))
    assert spec.hyper_parameters["base_model_location"] == "s3://escrow/checkpoint/step_4"
    assert "base_model" not in spec.hyper_parameters


def test_a_nova_model_package_is_a_member_of_the_request() -> None:
    text = NOVA.format(model=PACKAGE).replace("replicas: 4", f"model_package_group: {GROUP}")
    spec = expanded(text)
    assert spec.model_package_config is not None
    assert spec.model_package_config.request() == {"ModelPackageGroupArn": GROUP, "SourceModelPackageArn": PACKAGE}
    assert spec.hyper_parameters == {"sagemaker_recipe_local_path": RECIPE_FILE}


def test_a_group_that_the_spec_names_comes_first() -> None:
    document = {**SPEC, "model_package_config": {"model_package_group_arn": f"{GROUP}-own"}}
    spec = expanded(NOVA.format(model=PACKAGE), document)
    assert spec.model_package_config is not None
    assert spec.model_package_config.model_package_group_arn == f"{GROUP}-own"
    assert spec.model_package_config.source_model_package_arn == PACKAGE


def test_a_package_without_a_group_is_refused_as_the_service_would() -> None:
    assert list(refused(NOVA.format(model=PACKAGE))) == ["model_package_config.model_package_group_arn"]


def test_hyperparameters_of_the_spec_are_sent_to_nova() -> None:
    document = {**SPEC, "hyper_parameters": {"base_model": "own", "further": "1"}}
    spec = expanded(NOVA.format(model="nova-micro/prod"), document)
    assert spec.hyper_parameters["base_model"] == "own"
    assert spec.hyper_parameters["further"] == "1"


def test_the_functions_that_score_are_hyperparameters() -> None:
    text = NOVA.format(model="m").replace("replicas: 4", f"reward_lambda_arn: {LAMBDA}")
    assert expanded(text).hyper_parameters["reward_lambda_arn"] == LAMBDA
    text = NOVA.format(model="m") + f"evaluation: {{task: gen_qa}}\nprocessor: {{lambda_arn: {LAMBDA}}}\n"
    assert expanded(text).hyper_parameters["eval_lambda_arn"] == LAMBDA
    assert "eval_lambda_arn" not in expanded(text.replace("evaluation:", "other:")).hyper_parameters


DISTILLATION = """
run: {name: distilled, model_type: 'amazon.nova-pro-v1:0:300k', model_name_or_path: ''}
training_config: {distillation_data: 'true', kms_key: KEY, maxNumberOfPrompts: '20000'}
"""


def test_a_distillation_names_its_role_and_its_key() -> None:
    document = {**SPEC, "instance_type": "ml.r5.24xlarge", "role_arn": ROLE}
    spec = expanded(DISTILLATION.replace("KEY", "alias/data"), document)
    assert spec.hyper_parameters == {
        "distillation_data": "true",
        "kms_key": "alias/data",
        "role_arn": ROLE,
        "sagemaker_recipe_local_path": RECIPE_FILE,
    }


@pytest.mark.parametrize("role", [{}, {"role_arn": "distiller"}])
def test_a_distillation_without_role_and_key_says_both(role: dict[str, str]) -> None:
    assert list(refused(DISTILLATION.replace("KEY", "''"), {**SPEC, **role})) == [
        "role_arn",
        "recipe.training_config.kms_key",
    ]


@pytest.mark.parametrize(
    ("technique", "data_type"), [("SFT", "Converse"), ("dpo", "Converse"), ("RLVR", None), ("CPT", None)]
)
def test_conversations_of_nova_have_their_own_data_type(technique: str, data_type: str | None) -> None:
    document = {
        **SPEC,
        "recipe": {"hub": {"model": "nova", "technique": technique}},
        "input_data_config": [
            channel("train", "s3://bucket/train.jsonl"),
            channel("validation", "s3://bucket/v.jsonl", s3_data_type="S3Prefix"),
            channel("other", "s3://bucket/other/"),
        ],
    }
    found = expand(document, sources(NOVA.format(model="m")))["input_data_config"]
    assert isinstance(found, list)
    types = [one["data_source"]["s3_data_source"].get("s3_data_type") for one in found]  # type: ignore[index, call-overload]
    assert types == [data_type, "S3Prefix", None]


def test_nova_gets_no_local_path_for_its_model() -> None:
    text = """
run: {model_type: amazon.nova-x, model_name_or_path: '{{model_name_or_path}}', data_s3_path: '{{data_s3_path}}'}
output: '{{output_path}}'
"""
    specification = {
        "model_name_or_path": {"default": "nova-x/prod"},
        "output_path": {"default": ""},
        "data_s3_path": {"default": ""},
    }
    document = {**SPEC, "input_data_config": [channel("model", "s3://bucket/model/")]}
    (recipe,) = expansion(document, sources(text, specification=specification)).recipes
    assert recipe.document == {
        "run": {"model_type": "amazon.nova-x", "model_name_or_path": "nova-x/prod", "data_s3_path": ""},
        "output": "",
    }


# --- open models ---------------------------------------------------------------------------------

VERL = "run: {model_type: verl}\ntraining_config: {lr: 0.1, data: {files: a}}\n"


@pytest.mark.parametrize("text", [VERL, NOVA.format(model="m"), "evaluation: {task: mmlu}\n"])
def test_a_program_in_an_image_needs_its_image(text: str) -> None:
    assert list(refused(text, {**SPEC, "image": None})) == ["image"]
    assert expanded(text, {**SPEC, "image": None}, image="hub:1").image == "hub:1"


@pytest.mark.parametrize("name", ["lr", "files"])
def test_a_hyperparameter_that_is_the_recipes_is_never_dropped_silently(name: str) -> None:
    found = refused(VERL, {**SPEC, "hyper_parameters": {name: "0.2", "other": "1"}})
    assert list(found) == [f"hyper_parameters.{name}"]
    assert f"recipe.overrides: {{{name}" in found[f"hyper_parameters.{name}"]


def test_other_hyperparameters_are_sent() -> None:
    assert expanded(VERL, {**SPEC, "hyper_parameters": {"other": "1"}}).hyper_parameters == {
        "other": "1",
        "sagemaker_recipe_local_path": RECIPE_FILE,
    }


def test_an_evaluation_has_the_number_of_instances_of_its_recipe() -> None:
    spec = expanded("run: {replicas: 2}\nevaluation: {task: mmlu}\n")
    assert (spec.instance_count, spec.recipe and spec.recipe.family) == (2, "evaluation")


# --- programs of the user's own ------------------------------------------------------------------

LAUNCHER = """
run: {results_dir: /workspace/run}
trainer: {devices: 8, num_nodes: 2}
exp_manager: {exp_dir: /workspace/own, explicit_log_dir: null}
model: {lr: 0.1}
"""
PROGRAM = {**SPEC, "entrypoint": ["torchrun", "train.py"], "source_dir": "s3://bucket/source/a.tar.gz"}


def test_the_launchers_program_finds_its_recipe_and_its_checkpoints() -> None:
    spec = expanded(LAUNCHER, PROGRAM)
    assert spec.arguments == ["--config-path", "/opt/ml/input/data/recipe", "--config-name", "recipe.yaml"]
    assert spec.hyper_parameters == {"config-path": "/opt/ml/input/data/recipe", "config-name": "recipe.yaml"}
    assert spec.checkpoint_config.local_path == "/workspace/own"
    assert (spec.instance_count, spec.recipe and spec.recipe.family) == (2, "general")


def test_arguments_and_checkpoints_of_the_spec_come_first() -> None:
    document = {**PROGRAM, "arguments": [], "checkpoint_config": {"local_path": "/own"}}
    spec = expanded(LAUNCHER, document)
    assert (spec.arguments, spec.checkpoint_config.local_path) == ([], "/own")


@pytest.mark.parametrize("folder", ["/opt/ml/model", "/opt/ml/output", "/opt/ml/checkpoints", "results"])
def test_checkpoints_are_not_where_sagemaker_restores_none_or_restores_them_anyway(folder: str) -> None:
    assert expanded(LAUNCHER.replace("/workspace", folder), PROGRAM).checkpoint_config.local_path is None


PUBLIC = "run: {name: a, model_type: verl, results_dir: '${base_results_dir}/${.name}'}\ntraining_config: {lr: 0.1}\n"


def test_the_launchers_folder_of_results_is_one_that_survives_the_job() -> None:
    (recipe,) = expansion(SPEC, sources(PUBLIC)).recipes
    assert recipe.document["run"]["results_dir"] == "/opt/ml/checkpoints/a"  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("fields", "folder"),
    [
        ({"inputs": {"base_results_dir": "/own"}}, "/own/a"),
        ({"overrides": {"run": {"results_dir": "/other"}}}, "/other"),
    ],
)
def test_a_folder_of_results_that_the_user_names_comes_first(fields: dict[str, Any], folder: str) -> None:
    (recipe,) = expansion(SPEC, sources(PUBLIC, **fields)).recipes
    assert recipe.document["run"]["results_dir"] == folder  # type: ignore[index, call-overload]


@pytest.mark.parametrize("overrides", [{}, {"run": {"results_dir": "/other"}}])
def test_other_problems_are_reported_without_the_folder_of_results(overrides: dict[str, Any]) -> None:
    found = refused(PUBLIC.replace("lr: 0.1", "lr: '${nowhere}'"), overrides=overrides)
    assert list(found) == ["recipe.training_config.lr (base)"]
    assert "nowhere" in found["recipe.training_config.lr (base)"]


def test_without_a_program_the_error_says_what_to_give() -> None:
    found = refused(LAUNCHER)
    assert list(found) == ["entrypoint"]
    assert "source_dir" in found["entrypoint"]
    assert RECIPE_FILE in found["entrypoint"]


@pytest.mark.parametrize("instance_type", ["ml.m5.xlarge", "ml.c5.2xlarge", "ml.r5.large"])
def test_the_launcher_needs_accelerators(instance_type: str) -> None:
    document = {
        **PROGRAM,
        "instance_type": instance_type,
        "fallback_instance_types": ["ml.g5.xlarge", "ml.trn1.2xlarge"],
    }
    assert list(refused(LAUNCHER, document)) == ["instance_type"]


def test_a_recipe_for_a_program_of_ones_own_asks_for_nothing_else() -> None:
    document = {**PROGRAM, "instance_type": None}
    spec = expanded("lr: 0.1\n", document)
    assert (spec.arguments, spec.hyper_parameters, spec.instance_type) == ([], {}, None)


def test_the_function_of_an_evaluation_is_a_hyperparameter() -> None:
    text = f"{LAUNCHER}evaluation: {{task: qa}}\nprocessor: {{lambda_arn: {LAMBDA}}}\n"
    assert expanded(text, PROGRAM).hyper_parameters["lambda_arn"] == LAMBDA


# --- instances -----------------------------------------------------------------------------------


def test_every_instance_type_is_one_that_the_recipe_allows() -> None:
    document = {
        **SPEC,
        "instance_type": "ml.g5.xlarge",
        "fallback_instance_types": ["ml.p5.48xlarge", "ml.p4d.24xlarge"],
        "overrides": {"0": {"instance_type": "ml.g6.xlarge"}},
    }
    found = refused(f"{VERL}instance_types: [ml.p5.48xlarge, p4d.24xlarge]\n", document)
    assert list(found) == ["instance_type", "overrides.0.instance_type"]
    assert "ml.p5.48xlarge, ml.p4d.24xlarge" in found["instance_type"]


def test_the_override_specification_names_types_where_the_recipe_does_not() -> None:
    specification = {"instance_type": {"enum": ["ml.p5.48xlarge"]}, "replicas": {"enum": [2, 4]}}
    document = {**SPEC, "instance_type": "ml.g5.xlarge", "instance_count": 3}
    assert list(refused(VERL, document, specification=specification)) == ["instance_type", "instance_count"]
    assert expanded(VERL, {**SPEC, "instance_count": 4}, specification=specification).instance_count == 4


def test_a_missing_instance_type_is_said_with_those_allowed() -> None:
    found = refused(f"{VERL}instance_types: [ml.p5.48xlarge]\n", {**SPEC, "instance_type": None})
    assert list(found) == ["instance_type"]
    assert "ml.p5.48xlarge" in found["instance_type"]


def test_the_instance_types_of_a_spec_that_is_not_checked_yet() -> None:
    document = {
        "instance_type": 5,
        "fallback_instance_types": ["ml.a.b", None],
        "instance_preferences": [{"instance_type": "ml.c.d"}, "text"],
        "overrides": {"0-1": {"instance_type": "ml.e.f"}, "2": None},
    }
    assert list(instance_types(document)) == [  # type: ignore[arg-type]
        ("fallback_instance_types[0]", "ml.a.b"),
        ("instance_preferences[0]", "ml.c.d"),
        ("overrides.0-1.instance_type", "ml.e.f"),
    ]


# --- the model that training starts from ---------------------------------------------------------


def with_source(model: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A spec with the field `model`, as it is once the model is found."""
    return with_model({**SPEC, **fields}, ModelSource.model_validate(model))


def place_of(text: str, document: dict[str, Any], *path: str) -> Any:
    found = sources(text)
    result = expansion(document, found)
    assert expand(result.document, found) == result.document
    return value_at(result.recipes[0].document, *path)


def test_a_nova_model_in_s3_stays_where_it_is() -> None:
    document = with_source({"s3": "s3://escrow/step_4/"})
    assert place_of(NOVA.format(model="prod"), document, "run", "model_name_or_path") == "s3://escrow/step_4/"
    spec = expanded(NOVA.format(model="prod"), document)
    assert spec.hyper_parameters["base_model_location"] == "s3://escrow/step_4/"
    assert "base_model" not in spec.hyper_parameters
    assert spec.input_data_config == []


def test_a_nova_package_is_named_in_the_recipe_too() -> None:
    document = with_source({"package": PACKAGE, "package_group": GROUP})
    assert place_of(NOVA.format(model="prod"), document, "run", "model_name_or_path") == PACKAGE
    spec = expanded(NOVA.format(model="prod"), document)
    assert "base_model" not in spec.hyper_parameters
    assert spec.model_package_config is not None
    assert spec.model_package_config.source_model_package_arn == PACKAGE


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            "run: {model_type: llm_finetuning_aws}\ntraining_config: {model_config: {model_name_or_path: meta/x}}\n",
            ("training_config", "model_config", "model_name_or_path"),
        ),
        (
            "run: {model_type: verl}\ntraining_config: {actor_rollout_ref: {model: {path: meta/x, dtype: bf}}}\n",
            ("training_config", "actor_rollout_ref", "model", "path"),
        ),
        ("run: {model_type: verl}\ntraining_config: {model: {path: meta/x}}\n", ("training_config", "model", "path")),
        ("run: {model_name_or_path: ''}\nevaluation: {task: mmlu}\n", ("run", "model_name_or_path")),
    ],
)
def test_an_open_model_is_read_from_its_channel(text: str, path: tuple[str, ...]) -> None:
    document = with_source({"s3": "s3://team/tuned/v1.2/"})
    assert place_of(text, document, *path) == "/opt/ml/input/data/model"
    (channel_,) = expanded(text, document).input_data_config
    assert channel_.channel_name == "model"


def test_a_recipe_without_a_place_for_a_model_says_where_there_is_one() -> None:
    found = refused(VERL, with_source({"s3": "s3://team/tuned/"}))
    assert list(found) == ["model"]
    assert "training_config.actor_rollout_ref.model.path" in found["model"]


def test_a_program_of_ones_own_reads_the_channel_itself() -> None:
    spec = expanded("lr: 0.1\n", with_source({"s3": "s3://team/tuned/"}, entrypoint=["python", "train.py"]))
    assert [one.channel_name for one in spec.input_data_config] == ["model"]


# --- what such a job may do that a replica may not ------------------------------------------------


def test_a_job_in_which_nothing_of_muster_runs_may_be_isolated() -> None:
    document = {**SPEC, "enable_network_isolation": True}
    assert expanded(VERL, document).access_request()["EnableNetworkIsolation"] is True
    assert list(refused("lr: 0.1\n", {**document, "entrypoint": ["python"]})) == ["enable_network_isolation"]


# --- on a HyperPod cluster -----------------------------------------------------------------------


LLMFT = "run: {name: mine, model_type: verl}\ntraining_config: {model_config: {a: 1}}\ntrainer: {num_nodes: 2}\n"
REPOSITORY = "123456789012.dkr.ecr.us-east-1.amazonaws.com/fine-tuning"


@pytest.mark.parametrize(
    ("tag", "of_cluster"),
    [
        ("SM-TJ-SFT-v1", "SM-HP-SFT-v1"),
        ("SM-TJ-RFT-latest", "SM-HP-RFT-TRAIN-latest"),
        ("SM-HP-RFT-TRAIN-latest", "SM-HP-RFT-TRAIN-latest"),
        ("other-1", "other-1"),
    ],
)
def test_a_recipe_on_a_cluster_has_the_image_for_clusters(tag: str, of_cluster: str) -> None:
    document = {**SPEC, "backend": "hyperpod", "entrypoint": ["train"]}
    del document["image"]
    assert expanded(LLMFT, document, image=f"{REPOSITORY}:{tag}").image == f"{REPOSITORY}:{of_cluster}"
    jobs = {name: value for name, value in SPEC.items() if name != "image"}
    assert expanded(LLMFT, jobs, image=f"{REPOSITORY}:{tag}").image == f"{REPOSITORY}:{tag}"


def test_an_image_of_the_users_stays_on_a_cluster() -> None:
    document = {**SPEC, "backend": "hyperpod", "entrypoint": ["train"], "image": f"{REPOSITORY}:SM-TJ-x"}
    assert expanded(LLMFT, document, image=f"{REPOSITORY}:SM-TJ-y").image == f"{REPOSITORY}:SM-TJ-x"


def test_a_program_that_is_in_an_image_is_named_on_a_cluster() -> None:
    with pytest.raises(SpecError, match="write the program of the image in entrypoint"):
        expanded(LLMFT, {**SPEC, "backend": "hyperpod"})


def test_nova_does_not_run_on_a_cluster() -> None:
    found = refused(NOVA.format(model="nova-micro/prod"), {**SPEC, "backend": "hyperpod", "entrypoint": ["train"]})
    assert "restricted instance groups" in found["backend"]
