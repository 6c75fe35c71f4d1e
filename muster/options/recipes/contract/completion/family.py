"""The families of recipes: how each is known, what runs it, and which fields of a spec it fills in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from muster.contract.backend import Backend
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.recipe_reference import RECIPE_FILE, Family
from muster.contract.training.data_and_output import CHECKPOINT_DIR
from muster.options.recipes.contract.completion.placeholder_values import channel_named, needs_weights
from muster.options.recipes.contract.document_values import as_text, leaves, mapping_at, text_at, value_at
from muster.options.recipes.contract.recipe_request import RecipeRequest
from muster.options.recipes.contract.resolution import ReadRecipe
from muster.options.recipes.contract.resolved_recipe import RecipeSources, ResolvedRecipe

_MOUNT = "/opt/ml/input/data/recipe"  # where a container finds the folder with its recipe
LOCAL_PATH = "sagemaker_recipe_local_path"
"""The hyperparameter with which an image finds its recipe."""
_HYDRA = {"config-path": _MOUNT, "config-name": RECIPE_FILE}
"""How the launcher's programs find their recipe."""
_SCORES = "lambda_arn"
"""The hyperparameter of the function that scores an evaluation."""
_LLMFT = frozenset({"llm_finetuning_aws", "verl"})
_EVALUATIONS = ("evaluation", "llm_as_judge")
_PACKAGE = re.compile(r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]+:[0-9]{12}:model-package/.+")
_CONVERSATIONS = frozenset({"SFT", "DPO"})
"""Techniques whose data are conversations, for which S3DataType is Converse."""
# SageMaker fills or uploads these itself; a checkpoint in them is not there after a restart.
_MANAGED = ("/opt/ml/input/", "/opt/ml/model/", "/opt/ml/output/")
_CHECKPOINTS = (("exp_manager", "explicit_log_dir"), ("exp_manager", "exp_dir"), ("run", "results_dir"))
_TYPE_NAMES, _COUNT_NAMES = ("instance_type", "instance_types"), ("replicas", "instance_count", "num_nodes")
_ACCELERATED = ("g", "p", "trn")
"""How the families of the instance types begin that have GPUs or Trainium."""
# How the tags of AWS's images begin: of training jobs, of clusters, and of reinforcement learning on clusters.
_JOBS, _CLUSTERS = "SM-TJ-", "SM-HP-"
_REINFORCED, _TRAINING = "SM-HP-RFT-", "SM-HP-RFT-TRAIN-"


@dataclass
class Draft:
    """The document of a spec, its recipe, and what the family finds wrong.

    A value that the spec sets comes first: a family adds to it, and replaces nothing.
    """

    family: Family
    document: dict[str, JsonValue]
    request: RecipeRequest
    read: ReadRecipe
    resolved: ResolvedRecipe
    problems: list[Problem] = field(default_factory=list)

    @property
    def sources(self) -> RecipeSources:
        """What the recipe was resolved from."""
        return self.read.sources

    @property
    def recipe(self) -> dict[str, JsonValue]:
        """The resolved recipe."""
        return self.resolved.document

    def fill(self, name: str, value: JsonValue) -> None:
        """Set a field that the spec leaves out."""
        if self.document.get(name) is None:
            self.document[name] = value

    def fill_part(self, name: str, values: Mapping[str, JsonValue]) -> None:
        """Set those entries of a mapping that the spec leaves out."""
        found = self.document.get(name)
        if values and (found is None or isinstance(found, dict)):
            self.document[name] = {**values, **(found or {})}

    def change_channels(self, change: Callable[[list[JsonValue]], list[JsonValue]]) -> None:
        """Replace the channels, unless the spec has something else in their place."""
        found = self.document.get("input_data_config")
        changed = change(list(found)) if isinstance(found, list) else change([]) if found is None else []
        if changed or isinstance(found, list):
            self.document["input_data_config"] = changed

    def state(self, name: str, statement: str, remedy: str, allowed: str = "") -> None:
        """Add a problem that is not a wrong value."""
        self.problems.append(StatedProblem(name, statement, remedy, allowed))

    def refuse(self, name: str, found: JsonValue, remedy: str, allowed: str = "") -> None:
        """Add a problem with a value."""
        self.problems.append(Problem(name, repr(found), remedy, allowed))


def family_of(recipe: Mapping[str, JsonValue], document: Mapping[str, JsonValue]) -> Family | None:
    """What runs `recipe` for the spec `document`; None where nothing does.

    A program of the user's own that Muster calls comes first, whatever the recipe says about others.
    """
    if document.get("trainer") is not None or document.get("hook") is not None:
        return "trainer"
    kind, training = text_at(recipe, "run", "model_type").lower(), value_at(recipe, "training_config")
    nova = "amazon.nova" in kind and "model_name_or_path" in mapping_at(recipe, "run")
    if nova or value_at(training, "distillation_data") is not None:
        return "nova"
    if kind in _LLMFT and training:
        return "llmft"
    if "trainer" not in recipe and not training and any(map(recipe.get, _EVALUATIONS)):
        return "evaluation"
    # A program of the user's own may read a recipe of any form.
    own = document.get("entrypoint") is not None or document.get("algorithm_name") is not None
    return "general" if own or "trainer" in recipe else None


def fill_family(draft: Draft) -> None:
    """Fill in what the family's jobs need, and hold the spec against what the recipe allows."""
    rules, general = FAMILIES[draft.family], draft.family == "general"
    rules.fill(draft)
    if rules.count and (not general or "trainer" in draft.recipe):
        _check_types(draft, accelerated=general)
        _check_count(draft, rules.count)


def _fill_open(draft: Draft) -> None:
    """A job that fine-tunes or evaluates an open model, in an image of AWS."""
    _refuse_recipe_values(draft)
    _fill_image(draft)
    _fill_weights(draft)
    _fill_mlflow(draft)


def _fill_nova(draft: Draft) -> None:
    """A job that trains or evaluates a Nova model, whose weights stay with AWS: it names the model, or its package."""
    _fill_image(draft)
    if _on_cluster(draft):
        allowed = "on a cluster Nova needs restricted instance groups, which Muster cannot use"
        draft.state("backend", "hyperpod is set with a recipe of Nova", "leave it out", allowed)
    run = mapping_at(draft.recipe, "run")
    model, package, sent = text_at(run, "model_name_or_path"), dict[str, JsonValue](), dict[str, JsonValue]()
    if _PACKAGE.fullmatch(model):
        package["source_model_package_arn"] = model
    elif model:
        sent["base_model_location" if model.startswith("s3://") else "base_model"] = model
    if group := text_at(run, "model_package_group"):
        package["model_package_group_arn"] = group
    draft.fill_part("model_package_config", package)
    if text_at(draft.document, "model", "s3"):
        # The weights stay where they are: the service reads them itself.
        own = channel_named(draft.document, "model")
        draft.change_channels(lambda channels: [one for one in channels if own is None or one != own])
    sent |= _distillation(draft)
    # The Lambda functions that score: of an evaluation, and of reinforcement learning.
    if value_at(draft.recipe, "evaluation") and (scores := text_at(draft.recipe, "processor", "lambda_arn")):
        sent["eval_lambda_arn"] = scores
    if reward := text_at(run, "reward_lambda_arn"):
        sent["reward_lambda_arn"] = reward
    draft.fill_part("hyper_parameters", sent)
    if draft.request.hub is not None and draft.request.hub.technique.upper() in _CONVERSATIONS:
        draft.change_channels(lambda channels: list(map(_as_conversations, channels)))
    _fill_mlflow(draft)


def _distillation(draft: Draft) -> dict[str, JsonValue]:
    """What a distillation needs beside its recipe: the role and the key with which the service reads and writes."""
    training = mapping_at(draft.recipe, "training_config")
    if not (data := training.get("distillation_data")):
        return {}
    role, key = text_at(draft.document, "role_arn"), training.get("kms_key")
    if not role.startswith("arn:"):
        found = f"{role!r}, a name" if role else "missing"
        draft.state("role_arn", found, "write the ARN of the role", "a distillation passes it on to the service")
    if not key:
        remedy = "write a key in recipe.overrides: {training_config: {kms_key: …}}"
        draft.state("recipe.training_config.kms_key", "missing", remedy, "a distillation encrypts its data with it")
    return {"distillation_data": as_text(data), "role_arn": role, "kms_key": as_text(key)}


def _as_conversations(channel: JsonValue) -> JsonValue:
    """A channel of conversations that leaves its data's type out."""
    source = value_at(channel, "data_source", "s3_data_source")
    if not isinstance(channel, dict) or channel.get("channel_name") not in {"train", "validation"}:
        return channel
    if not isinstance(source, dict) or source.get("s3_data_type") is not None:
        return channel
    return {**channel, "data_source": {"s3_data_source": {**source, "s3_data_type": "Converse"}}}


def _fill_general(draft: Draft) -> None:
    """A job whose program the user brings: of NeMo's launcher, of checkpointless training, or one of his own.

    Nothing is fetched when a job starts, so the spec names the program: a folder of source code and its entrypoint.
    """
    _refuse_recipe_values(draft, _SCORES)
    if draft.document.get("entrypoint") is None and draft.document.get("algorithm_name") is None:
        remedy = (
            "give the program: source_dir, a folder (such as a clone of the recipe's training code), and entrypoint, "
            f"such as [torchrun, --nproc_per_node=8, train.py]; the recipe is at {_MOUNT}/{RECIPE_FILE}"
        )
        draft.state("entrypoint", "missing: no program reads the recipe, and Muster fetches none", remedy)
    if "trainer" not in draft.recipe:
        return
    draft.fill_part("hyper_parameters", dict(_HYDRA))
    # Only beside an entrypoint: SageMaker takes arguments for nothing else.
    if draft.document.get("entrypoint") is not None:
        draft.fill("arguments", [word for name, value in _HYDRA.items() for word in (f"--{name}", value)])
    scores = text_at(draft.recipe, "processor", "lambda_arn")
    if value_at(draft.recipe, "evaluation") and scores:
        draft.fill_part("hyper_parameters", {_SCORES: scores})
    # The first folder of checkpoints that SageMaker would not restore for a rerun. What is below the default is kept.
    folders = (f"{text_at(draft.recipe, *path)}/" for path in _CHECKPOINTS)
    own = (one for one in folders if one.startswith("/") and one != "/" and not one.startswith(_MANAGED))
    if (folder := next(own, None)) is not None and not folder.startswith(f"{CHECKPOINT_DIR}/"):
        draft.fill_part("checkpoint_config", {"local_path": folder[:-1]})


def _fill_trainer(draft: Draft) -> None:
    """A program that Muster calls: a hooked one, or a trainer, whose keyword arguments are the recipe's section.

    Those of the spec come first.
    """
    _fill_weights(draft)
    section = draft.request.kwargs
    if section is None:
        return
    found = value_at(draft.recipe, *section.split("."))
    if not isinstance(found, dict):
        sections = [name for name, item in draft.recipe.items() if isinstance(item, dict)]
        allowed = f"sections: {', '.join(sections)}" if sections else "the recipe has no section"
        draft.refuse("recipe.kwargs", section, "name a section of the recipe, such as training_config", allowed)
        return
    own = draft.document.get("kwargs")
    if own is None or isinstance(own, dict):
        draft.document["kwargs"] = _merged(found, own or {})


def _merged(below: dict[str, JsonValue], above: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Mappings merged at every level; values of `above` come first."""
    merged = dict(below)
    for name, value in above.items():
        lower = merged.get(name)
        merged[name] = _merged(lower, value) if isinstance(lower, dict) and isinstance(value, dict) else value
    return merged


@dataclass(frozen=True)
class FamilyRules:
    """What the recipes of a family have in common.

    Args:
        fill: fills the spec in.
        count: where they have the number of instances of their job.
        models: where they name the model from which training starts; the first one that a recipe has.
    """

    fill: Callable[[Draft], None]
    count: tuple[str, ...] = ()
    models: tuple[tuple[str, ...], ...] = ()


_RUN_MODEL = (("run", "model_name_or_path"),)
_TRAINED_MODELS = (
    ("training_config", "model_config", "model_name_or_path"),
    ("training_config", "actor_rollout_ref", "model", "path"),
    ("training_config", "model", "path"),
)
FAMILIES: Mapping[Family, FamilyRules] = {
    "nova": FamilyRules(_fill_nova, ("run", "replicas"), _RUN_MODEL),
    "llmft": FamilyRules(_fill_open, ("trainer", "num_nodes"), _TRAINED_MODELS),
    "evaluation": FamilyRules(_fill_open, ("run", "replicas"), _RUN_MODEL),
    "general": FamilyRules(_fill_general, ("trainer", "num_nodes")),
    "trainer": FamilyRules(_fill_trainer),
}


# What several families share.


def _on_cluster(draft: Draft) -> bool:
    """Whether the ranks without an override run on a HyperPod cluster."""
    return draft.document.get("backend") == Backend.HYPERPOD.value


def cluster_image(image: str) -> str:
    """The image for clusters that AWS publishes beside one for training jobs; one of another name stays."""
    repository, colon, tag = image.rpartition(":")
    named = tag.replace(_JOBS, _CLUSTERS, 1)
    if named.startswith(_REINFORCED) and not named.startswith(_TRAINING):
        named = _TRAINING + named.removeprefix(_REINFORCED)
    return f"{repository}{colon}{named}"


def _fill_image(draft: Draft) -> None:
    """The image, which has the program that reads the recipe, and where it finds the recipe."""
    image = draft.sources.image
    if draft.document.get("algorithm_name") is None:
        if image is not None:
            draft.fill("image", cluster_image(image) if _on_cluster(draft) else image)
        if draft.document.get("image") is None:
            statement, remedy = "missing, and the recipe names none", "set image: the image of the recipe's model"
            draft.state("image", statement, remedy, "the program of this recipe is in its image")
    draft.fill_part("hyper_parameters", {LOCAL_PATH: f"{_MOUNT}/{RECIPE_FILE}"})


def _fill_weights(draft: Draft) -> None:
    """The channel of the base model's weights, where the hub has them and the recipe does not name others."""
    if needs_weights(draft.read) and channel_named(draft.document, "model") is None:
        source: dict[str, JsonValue] = {"s3_data_source": {"s3_data_type": "S3Prefix", "s3_uri": draft.sources.weights}}
        channel: JsonValue = {"channel_name": "model", "data_source": source, "input_mode": "File"}
        draft.change_channels(lambda channels: [*channels, channel])


def _fill_mlflow(draft: Draft) -> None:
    """The names of the experiment and the run, which the containers require with a tracking server."""
    if text_at(draft.document, "mlflow_config", "mlflow_resource_arn"):
        name = draft.sources.name
        draft.fill_part("mlflow_config", {"mlflow_experiment_name": name, "mlflow_run_name": name})


def _refuse_recipe_values(draft: Draft, *sent: str) -> None:
    """Refuse hyperparameters that are the recipe's: the program reads those from the recipe alone, but for `sent`."""
    known = {*draft.resolved.named, *(path[-1] for path, _ in leaves(draft.recipe) if path)} - set(sent)
    for name in mapping_at(draft.document, "hyper_parameters"):
        if name in known:
            remedy = f"write it in recipe.overrides: {{{name}: …}}"
            draft.state(f"hyper_parameters.{name}", "the program reads this from the recipe alone", remedy)


def _check_types(draft: Draft, *, accelerated: bool) -> None:
    """Every type that the spec names must be one that the recipe allows; with `accelerated`, of GPUs or Trainium."""
    allowed = _allowed_types(draft)
    named = list(instance_types(draft.document))
    kinds = "an instance type with GPUs or Trainium" if accelerated else "an instance type"
    if not any("." not in place for place, _ in named):
        choices = f"one of {', '.join(allowed)}" if allowed else kinds
        draft.state("instance_type", "missing", "it is required with this recipe", f"allowed: {choices}")
    for place, name in named:
        if allowed and name not in allowed:
            remedy = "choose one of these, or set instance_types in recipe.overrides"
            draft.refuse(place, name, remedy, f"the recipe allows {', '.join(allowed)}")
        elif accelerated and not name.removeprefix("ml.").startswith(_ACCELERATED):
            draft.refuse(place, name, "choose a type of the families g, p or trn", f"the recipe needs {kinds}")


def _allowed_types(draft: Draft) -> list[str]:
    """The types in the recipe itself, or else in its override specification."""
    parameters = draft.read.parameters
    chosen = [parameters[name].enum for name in _TYPE_NAMES if name in parameters]
    named = (draft.recipe.get("instance_types"), *chosen)
    found = next((one for one in named if isinstance(one, list | tuple) and one), ())
    # The hub's documents leave the prefix out here and there.
    return [one if one.startswith("ml.") else f"ml.{one}" for one in found if isinstance(one, str) and one]


def instance_types(document: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """The instance types in a spec that is not checked yet, each with its field."""
    parts: list[tuple[str, object]] = [("", document)]
    parts += [(f"overrides.{ranks}.", part) for ranks, part in mapping_at(document, "overrides").items()]
    for prefix, part in parts:
        others, preferred = value_at(part, "fallback_instance_types"), value_at(part, "instance_preferences")
        items = [("instance_type", value_at(part, "instance_type"))]
        if isinstance(others, list):
            items += [(f"fallback_instance_types[{index}]", one) for index, one in enumerate(others)]
        if isinstance(preferred, list):
            types = [value_at(one, "instance_type") for one in preferred]
            items += [(f"instance_preferences[{index}]", one) for index, one in enumerate(types)]
        yield from ((f"{prefix}{field}", one) for field, one in items if isinstance(one, str))


def _check_count(draft: Draft, path: tuple[str, ...]) -> None:
    """Fill the number of instances in from the recipe's value at `path`, and hold it against what the recipe allows."""
    count = value_at(draft.recipe, *path)
    if isinstance(count, int) and not isinstance(count, bool):
        draft.fill("instance_count", count)
    found = draft.document.get("instance_count")
    parameters = draft.read.parameters
    usual = [name for name in _COUNT_NAMES if name in parameters][:1]
    own = (name for name, paths in draft.resolved.named.items() if path in paths)
    limits = (parameters[name] for name in (*usual, *own) if name in parameters)
    if (mistake := next(filter(None, (one.mistake(found) for one in limits)), None)) is not None:
        allowed, remedy = mistake
        draft.refuse("instance_count", found, remedy, f"the recipe allows {allowed} instances")
