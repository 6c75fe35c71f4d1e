"""What each family of recipes fills into a spec, and what it cannot do without."""

import json
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.model_source import ModelSource, with_model
from muster.options.recipes.contract.completion.family import family_of, instance_types
from muster.options.recipes.contract.document_values import value_at
from muster.options.recipes.contract.expansion import expansion
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText
from tests.support.full_specs import channel, s3

RECIPE_FILE = "/opt/ml/input/data/recipe/recipe.yaml"
ROLE = "arn:aws:iam::123456789012:role/distiller"
PACKAGE = "arn:aws:sagemaker:us-east-1:123456789012:model-package/nova/1"
GROUP = "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/nova"
LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:score"
SPEC: dict[str, Any] = {"replicas": 1, "image": "image:1", "instance_type": "ml.p5.48xlarge", "recipe": "r.yaml"}


def nova(model: str = "prod", more: str = "replicas: 4") -> str:
    run = f"run: {{name: mine, model_type: 'amazon.nova-micro-v1:0:128k', model_name_or_path: {model}, {more}}}"
    return f"{run}\ntraining_config: {{max_length: 8192}}\n"


def sources(text: str, **fields: Any) -> RecipeSources:
    specification = fields.pop("specification", None)
    if specification is not None:
        fields["override_spec"] = SourceText(place="r.json", text=json.dumps(specification))
    return RecipeSources(name="r", base=SourceText(place="r.yaml", text=text), **fields)


def expand(document: dict[str, Any], found: RecipeSources) -> dict[str, Any]:
    return expansion(document, found).document


def expanded(text: str, document: dict[str, Any] = SPEC, **fields: Any) -> Spec:
    found = sources(text, **fields)
    result = expand(document, found)
    return parse_spec(result)


def refused(text: str, document: dict[str, Any] = SPEC, **fields: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        expand(document, sources(text, **fields))
    return {problem.field: str(problem) for problem in caught.value.problems}


def resolved(text: str, *path: str, document: dict[str, Any] = SPEC, **fields: Any) -> Any:
    """A value of the recipe that the job reads."""
    found = sources(text, **fields)
    result = expansion(document, found)
    return value_at(result.recipes[0].document, *path)


# --- which family --------------------------------------------------------------------------------

FAMILIES: list[tuple[Any, Any, str | None]] = [
    ({"run": {"model_type": "Amazon.Nova-Lite", "model_name_or_path": "x"}, "evaluation": {"a": 1}}, {}, "nova"),
    ({"run": {"model_type": "amazon.nova-lite"}}, {}, None),
    ({"training_config": {"distillation_data": "true"}}, {}, "nova"),
    ({"run": {"model_type": "llm_finetuning_aws"}, "training_config": {"a": 1}}, {}, "llmft"),
    ({"run": {"model_type": "VERL"}, "training_config": {"a": 1}, "trainer": {}}, {}, "llmft"),
    ({"llm_as_judge": {"metrics": "Faithfulness"}}, {}, "evaluation"),
    ({"trainer": {"num_nodes": 1}, "evaluation": {"task": "mmlu"}}, {}, "general"),
    ({"trainer": {}}, {}, "general"),
    ({"lr": 0.1}, {}, None),
    ({"lr": 0.1}, {"entrypoint": ["python"]}, "general"),
    ({"run": {"model_type": "verl"}, "training_config": {"a": 1}}, {"hook": "huggingface"}, "trainer"),
    ({"run": "text", "training_config": [1]}, {}, None),
]


def test_a_recipe_belongs_to_the_family_of_its_sections() -> None:
    for recipe, document, family in FAMILIES:
        assert family_of(recipe, document) == family, (recipe, document)


# --- Nova ----------------------------------------------------------------------------------------


def test_a_nova_model_is_a_hyperparameter_or_a_package_of_the_request() -> None:
    path = {"sagemaker_recipe_local_path": RECIPE_FILE}
    spec = expanded(nova("nova-micro/prod"))
    assert spec.hyper_parameters == {"base_model": "nova-micro/prod", **path}
    assert (spec.instance_count, spec.entrypoint, spec.model_package_config) == (4, None, None)
    in_s3 = expanded(nova("s3://escrow/step_4")).hyper_parameters
    assert in_s3 == {"base_model_location": "s3://escrow/step_4", **path}
    # What the spec sets comes first, and what only it has is sent.
    own = {"base_model": "own", "further": "1"}
    assert own.items() <= expanded(nova(), {**SPEC, "hyper_parameters": own}).hyper_parameters.items()
    group = {"model_package_config": {"model_package_group_arn": f"{GROUP}-own"}}
    for text, fields, arn in (
        (nova(PACKAGE, f"model_package_group: {GROUP}"), {}, GROUP),
        (nova(PACKAGE), group, f"{GROUP}-own"),
    ):
        spec = expanded(text, {**SPEC, **fields})
        request = {"ModelPackageGroupArn": arn, "SourceModelPackageArn": PACKAGE}
        assert spec.model_package_config is not None
        assert (spec.model_package_config.request(), spec.hyper_parameters) == (request, path)
    assert list(refused(nova(PACKAGE))) == ["model_package_config.model_package_group_arn"]


def test_the_functions_that_score_are_hyperparameters() -> None:
    assert expanded(nova(more=f"reward_lambda_arn: {LAMBDA}")).hyper_parameters["reward_lambda_arn"] == LAMBDA
    text = nova() + f"evaluation: {{task: gen_qa}}\nprocessor: {{lambda_arn: {LAMBDA}}}\n"
    assert expanded(text).hyper_parameters["eval_lambda_arn"] == LAMBDA
    assert "eval_lambda_arn" not in expanded(text.replace("evaluation:", "other:")).hyper_parameters
    text = f"{LAUNCHER}evaluation: {{task: qa}}\nprocessor: {{lambda_arn: {LAMBDA}}}\n"
    assert expanded(text, PROGRAM).hyper_parameters["lambda_arn"] == LAMBDA


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
    for role in ({}, {"role_arn": "distiller"}):
        found = refused(DISTILLATION.replace("KEY", "''"), {**SPEC, **role})
        assert list(found) == ["role_arn", "recipe.training_config.kms_key"], role


def test_conversations_of_nova_have_their_own_data_type() -> None:
    channels = [channel("train"), channel("validation", s3(s3_data_type="S3Prefix")), channel("other")]
    for technique, data_type in {"SFT": "Converse", "dpo": "Converse", "RLVR": None, "CPT": None}.items():
        hub = {"hub": {"model": "nova", "technique": technique}}
        found: Any = expand({**SPEC, "recipe": hub, "input_data_config": channels}, sources(nova()))
        types = [one["data_source"]["s3_data_source"].get("s3_data_type") for one in found["input_data_config"]]
        assert types == [data_type, "S3Prefix", None], technique


def test_nova_gets_no_local_path_for_its_model() -> None:
    run = "{model_type: amazon.nova-x, model_name_or_path: '{{model_name_or_path}}', output: '{{output_path}}'}"
    defaults = {"model_name_or_path": {"default": "nova-x/prod"}, "output_path": {"default": ""}}
    document = {**SPEC, "input_data_config": [channel("model")]}
    found = resolved(f"run: {run}", "run", document=document, specification=defaults)
    assert found == {"model_type": "amazon.nova-x", "model_name_or_path": "nova-x/prod", "output": ""}


# --- open models ---------------------------------------------------------------------------------

VERL = "run: {model_type: verl}\ntraining_config: {lr: 0.1, data: {files: a}}\n"


def test_a_program_in_an_image_needs_its_image() -> None:
    for text in (VERL, nova(), "evaluation: {task: mmlu}\n"):
        assert list(refused(text, {**SPEC, "image": None})) == ["image"], text
        assert expanded(text, {**SPEC, "image": None}, image="hub:1").image == "hub:1"
    assert expanded("run: {replicas: 2}\nevaluation: {task: mmlu}\n").instance_count == 2


def test_a_hyperparameter_that_is_the_recipes_is_never_dropped_silently() -> None:
    for name in ("lr", "files"):
        found = refused(VERL, {**SPEC, "hyper_parameters": {name: "0.2", "other": "1"}})
        assert list(found) == [f"hyper_parameters.{name}"]
        assert f"recipe.overrides: {{{name}" in found[f"hyper_parameters.{name}"]
    others = expanded(VERL, {**SPEC, "hyper_parameters": {"other": "1"}}).hyper_parameters
    assert others == {"other": "1", "sagemaker_recipe_local_path": RECIPE_FILE}


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
    # A program that reads something else is given nothing.
    other = expanded("lr: 0.1\n", {**PROGRAM, "instance_type": None})
    assert (other.arguments, other.hyper_parameters, other.instance_type) == ([], {}, None)
    own = expanded(LAUNCHER, {**PROGRAM, "arguments": [], "checkpoint_config": {"local_path": "/own"}})
    assert (own.arguments, own.checkpoint_config.local_path) == ([], "/own")
    # Where SageMaker restores no checkpoints, or restores them anyway.
    for folder in ("/opt/ml/model", "/opt/ml/output", "/opt/ml/checkpoints", "results"):
        elsewhere = expanded(LAUNCHER.replace("/workspace", folder), PROGRAM)
        assert elsewhere.checkpoint_config.local_path is None, folder


PUBLIC = "run: {name: a, model_type: verl, results_dir: '${base_results_dir}/${.name}'}\ntraining_config: {lr: 0.1}\n"


def test_the_launchers_folder_of_results_is_one_that_survives_the_job() -> None:
    place = ("run", "results_dir")
    other = {"run": {"results_dir": "/other"}}
    assert resolved(PUBLIC, *place) == "/opt/ml/checkpoints/a"
    assert resolved(PUBLIC, *place, inputs={"base_results_dir": "/own"}) == "/own/a"
    assert resolved(PUBLIC, *place, overrides=other) == "/other"
    # Other problems are reported without it.
    for overrides in ({}, other):
        found = refused(PUBLIC.replace("lr: 0.1", "lr: '${nowhere}'"), overrides=overrides)
        assert list(found) == ["recipe.training_config.lr (base)"], overrides


def test_the_launcher_needs_a_program_and_accelerators() -> None:
    found = refused(LAUNCHER)
    assert list(found) == ["entrypoint"]
    assert RECIPE_FILE in found["entrypoint"]
    others = {"fallback_instance_types": ["ml.g5.xlarge", "ml.trn1.2xlarge"]}
    assert list(refused(LAUNCHER, {**PROGRAM, "instance_type": "ml.m5.xlarge", **others})) == ["instance_type"]


# --- instances -----------------------------------------------------------------------------------


def test_every_instance_type_is_one_that_the_recipe_allows() -> None:
    document = {
        **SPEC,
        "instance_type": "ml.g5.xlarge",
        "fallback_instance_types": ["ml.p5.48xlarge", "ml.p4d.24xlarge"],
        "overrides": {"0": {"instance_type": "ml.g6.xlarge"}},
    }
    allowed = f"{VERL}instance_types: [ml.p5.48xlarge, p4d.24xlarge]\n"
    found = refused(allowed, document)
    assert list(found) == ["instance_type", "overrides.0.instance_type"]
    assert "ml.p5.48xlarge, ml.p4d.24xlarge" in found["instance_type"]
    assert "ml.p5.48xlarge, ml.p4d.24xlarge" in refused(allowed, {**SPEC, "instance_type": None})["instance_type"]
    # The override specification names types where the recipe does not.
    specification = {"instance_type": {"enum": ["ml.p5.48xlarge"]}, "replicas": {"enum": [2, 4]}}
    document = {**SPEC, "instance_type": "ml.g5.xlarge", "instance_count": 3}
    assert list(refused(VERL, document, specification=specification)) == ["instance_type", "instance_count"]
    assert expanded(VERL, {**SPEC, "instance_count": 4}, specification=specification).instance_count == 4


@pytest.mark.parametrize("family", [VERL, ""])
def test_the_number_of_instances_is_one_that_the_recipe_allows(family: str) -> None:
    recipe = f"{family}trainer: {{ranks: '{{{{nodes}}}}', num_nodes: '{{{{nodes}}}}'}}\n"
    document = {**SPEC, "entrypoint": ["python", "train.py"]}
    for limits, wrong, allowed in (({"min": 1, "max": 4}, 8, "1 to 4"), ({"enum": [2, 4]}, 3, "2, 4")):
        given = {"nodes": {"type": "integer", "default": 2, **limits}}
        found = refused(recipe, {**document, "instance_count": wrong}, specification=given)
        assert list(found) == ["instance_count"]
        assert f"found {wrong}; the recipe allows {allowed} instances" in found["instance_count"]
        assert expanded(recipe, {**document, "instance_count": 4}, specification=given).instance_count == 4
        assert expanded(recipe, document, specification=given).instance_count == 2


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


def test_a_nova_model_in_s3_or_a_package_is_named_in_the_recipe() -> None:
    for model, named, location in (
        ({"s3": "s3://escrow/step_4/"}, "s3://escrow/step_4/", "s3://escrow/step_4/"),
        ({"package": PACKAGE, "package_group": GROUP}, PACKAGE, None),
    ):
        document = with_source(model)
        assert resolved(nova(), "run", "model_name_or_path", document=document) == named
        spec = expanded(nova(), document)
        assert "base_model" not in spec.hyper_parameters
        assert spec.hyper_parameters.get("base_model_location") == location
        assert spec.input_data_config == []
        assert (spec.model_package_config is None) == (location is not None)


LLMFT = "run: {model_type: llm_finetuning_aws}\ntraining_config: {model_config: {model_name_or_path: meta/x}}\n"
REFERENCES = "run: {model_type: verl}\ntraining_config: {actor_rollout_ref: {model: {path: meta/x, dtype: bf}}}\n"


def test_an_open_model_is_read_from_its_channel() -> None:
    document = with_source({"s3": "s3://team/tuned/v1.2/"})
    for text, path in (
        (LLMFT, "training_config.model_config.model_name_or_path"),
        (REFERENCES, "training_config.actor_rollout_ref.model.path"),
        ("run: {model_type: verl}\ntraining_config: {model: {path: meta/x}}\n", "training_config.model.path"),
        ("run: {model_name_or_path: ''}\nevaluation: {task: mmlu}\n", "run.model_name_or_path"),
    ):
        assert resolved(text, *path.split("."), document=document) == "/opt/ml/input/data/model", path
        assert [one.channel_name for one in expanded(text, document).input_data_config] == ["model"], path
    # A program of one's own reads the channel itself.
    spec = expanded("lr: 0.1\n", with_source({"s3": "s3://team/tuned/"}, entrypoint=["python", "train.py"]))
    assert [one.channel_name for one in spec.input_data_config] == ["model"]
    found = refused(VERL, document)
    assert list(found) == ["model"]
    assert "training_config.actor_rollout_ref.model.path" in found["model"]


def test_what_refers_to_the_model_of_a_recipe_gets_that_of_the_spec() -> None:
    document, place = with_source({"s3": "s3://team/tuned/v1.2/"}), "/opt/ml/input/data/model"
    model = "model_name_or_path: meta/x, ref_model_name_or_path: '${.model_name_or_path}', tokenizer: meta/x"
    text = f"run: {{model_type: llm_finetuning_aws}}\ntraining_config: {{model_config: {{{model}}}}}\n"
    for named in (text, text.replace("meta/x,", "'${base}',", 1) + "base: meta/x\n"):
        found = resolved(named, "training_config", "model_config", document=document)
        assert found == {"model_name_or_path": place, "ref_model_name_or_path": place, "tokenizer": "meta/x"}
    # Through a mapping that is an interpolation itself, and in a text.
    actor = "actor_rollout_ref: {model: '${training_config.base}'}, base: {path: meta/x, dtype: bf}"
    critic = "critic: {model: {path: '${training_config.actor_rollout_ref.model.path}', cache: '${.path}/cache'}}"
    text = f"run: {{model_type: verl}}\ntraining_config: {{{actor}, {critic}}}\n"
    found = resolved(text, "training_config", document=document)
    assert found["actor_rollout_ref"]["model"] == {"path": place, "dtype": "bf"}
    assert found["critic"]["model"] == {"path": place, "cache": f"{place}/cache"}
    assert found["base"] == {"path": "meta/x", "dtype": "bf"}


def test_the_model_of_the_spec_comes_before_what_a_hub_decides_and_is_no_value_of_the_recipe() -> None:
    path, document = ("training_config", "model_config"), with_source({"s3": "s3://team/tuned/"})
    values = {"model_name_or_path": {"type": "string", "enum": ["meta/x"], "default": "meta/x", "required": True}}
    text = LLMFT.replace("meta/x", "meta/x, ref: '${.model_name_or_path}'")
    found = resolved(text, *path, document=document, hub_model="x", specification=values)
    assert found == {"model_name_or_path": "/opt/ml/input/data/model", "ref": "/opt/ml/input/data/model"}
    # An input to which only the recipe's own model refers is still one that the recipe has.
    text = LLMFT.replace("meta/x", "'${base}'")
    found = resolved(text, *path, document=document, inputs={"base": "meta/x"})
    assert found == {"model_name_or_path": "/opt/ml/input/data/model"}


def test_a_job_in_which_nothing_of_muster_runs_may_be_isolated() -> None:
    document = {**SPEC, "enable_network_isolation": True}
    assert expanded(VERL, document).enable_network_isolation is True
    assert list(refused("lr: 0.1\n", {**document, "entrypoint": ["python"]})) == ["enable_network_isolation"]


# --- on a HyperPod cluster -----------------------------------------------------------------------


def test_a_recipe_on_a_cluster_has_the_image_for_clusters() -> None:
    repository = "123456789012.dkr.ecr.us-east-1.amazonaws.com/fine-tuning"
    jobs = {**SPEC, "image": None}
    cluster = {**SPEC, "backend": "hyperpod", "entrypoint": ["train"]}
    for tag, of_cluster in {
        "SM-TJ-SFT-v1": "SM-HP-SFT-v1",
        "SM-TJ-RFT-latest": "SM-HP-RFT-TRAIN-latest",
        "SM-HP-RFT-TRAIN-latest": "SM-HP-RFT-TRAIN-latest",
    }.items():
        image = f"{repository}:{tag}"
        assert expanded(LLMFT, {**cluster, "image": None}, image=image).image == f"{repository}:{of_cluster}", tag
        assert expanded(LLMFT, jobs, image=image).image == image
    # The user's own is left.
    own = f"{repository}:SM-TJ-x"
    assert expanded(LLMFT, {**cluster, "image": own}, image=f"{repository}:SM-TJ-y").image == own


def test_on_a_cluster_the_program_of_an_image_is_named_and_nova_does_not_run() -> None:
    assert "entrypoint" in refused(LLMFT, {**SPEC, "backend": "hyperpod"})
    found = refused(nova(), {**SPEC, "backend": "hyperpod", "entrypoint": ["train"]})
    assert "restricted instance groups" in found["backend"]
