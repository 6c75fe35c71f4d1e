"""Recipes of a program that the user brings: NeMo's launcher, checkpointless training, and programs of one's own.

Nothing is fetched when a job starts, so the spec names the program: a folder of source code and its entrypoint.
"""

from __future__ import annotations

from muster.contract.recipe.families.draft import RECIPE_MOUNT, Draft
from muster.contract.recipe.families.instances import check_count, check_types
from muster.contract.recipe.families.own_image import refuse_recipe_values
from muster.contract.recipe.families.values import text_at, value_at
from muster.contract.recipe.recipe_reference import RECIPE_FILE
from muster.contract.training.data_and_output import CHECKPOINT_DIR

_HYDRA = {"config-path": RECIPE_MOUNT, "config-name": RECIPE_FILE}
"""How the launcher's programs find their recipe."""
_SCORES = "lambda_arn"
"""The hyperparameter of the function that scores an evaluation."""
# SageMaker fills or uploads these itself; a checkpoint in them is not there after a restart.
_MANAGED = ("/opt/ml/input", "/opt/ml/model", "/opt/ml/output")
_CHECKPOINTS = (("exp_manager", "explicit_log_dir"), ("exp_manager", "exp_dir"), ("run", "results_dir"))


def fill_general(draft: Draft) -> None:
    """The fields of a job whose program the user brings."""
    refuse_recipe_values(draft, _SCORES)
    if draft.document.get("entrypoint") is None and draft.document.get("algorithm_name") is None:
        remedy = (
            "give the program: source_dir, a folder (such as a clone of the recipe's training code), and entrypoint, "
            f"such as [torchrun, --nproc_per_node=8, train.py]; the recipe is at {RECIPE_MOUNT}/{RECIPE_FILE}"
        )
        draft.state("entrypoint", "missing: no program reads the recipe, and Muster fetches none", remedy)
    if "trainer" not in draft.recipe:
        return
    draft.fill_part("hyper_parameters", dict(_HYDRA))
    # Only beside an entrypoint: SageMaker takes arguments for nothing else.
    if draft.document.get("entrypoint") is not None and draft.document.get("arguments") is None:
        draft.document["arguments"] = [word for name, value in _HYDRA.items() for word in (f"--{name}", value)]
    scores = text_at(draft.recipe, "processor", "lambda_arn")
    if value_at(draft.recipe, "evaluation") and scores:
        draft.fill_part("hyper_parameters", {_SCORES: scores})
    _fill_checkpoints(draft)
    check_types(draft, accelerated=True)
    check_count(draft, "trainer", "num_nodes")


def _fill_checkpoints(draft: Draft) -> None:
    """The folder in which the program keeps its checkpoints, so that SageMaker restores it for a rerun."""
    for path in _CHECKPOINTS:
        folder = text_at(draft.recipe, *path)
        if not folder.startswith("/") or any(f"{folder}/".startswith(f"{top}/") for top in _MANAGED):
            continue
        # What is below the default is kept anyway.
        if not f"{folder}/".startswith(f"{CHECKPOINT_DIR}/"):
            draft.fill_part("checkpoint_config", {"local_path": folder})
        return
