"""Whatever a spec and its recipe hold, an expansion is an ordinary spec, or an error of ours."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contract.errors import SpecError
from muster.contract.recipe.expansion import expand
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
from muster.contract.recipe.recipe_text import recipe_yaml
from muster.contract.recipe.unresolved import check_elsewhere, requested_recipe
from muster.contract.run.execution_input import start_input
from muster.contract.spec.spec_reader import parse_spec

NAMES = st.sampled_from(
    (
        *("run", "trainer", "training_config", "evaluation", "processor", "model_type", "model_name_or_path"),
        *("num_nodes", "replicas", "lambda_arn", "distillation_data", "kms_key", "instance_types", "exp_dir", "lr"),
    )
)
TEXTS = st.sampled_from(
    ["", "verl", "amazon.nova-x", "ml.p5.48xlarge", "s3://bucket/a/", "arn:aws:x", "{{data_path}}", "${.lr}", "/a"]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 5), st.floats(allow_nan=False), TEXTS)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    (
        *("replicas", "trainer", "kwargs", "entrypoint", "arguments", "input_data_config", "mlflow_config", "hook"),
        *("instance_type", "instance_count", "overrides", "hyper_parameters", "model_package_config", "recipe"),
        *("fallback_instance_types", "instance_preferences", "sweep", "role_arn", "image", "checkpoint_config"),
        *("model", "no_such_field"),
    )
)
CHANNEL = {"channel_name": "train", "data_source": {"s3_data_source": {"s3_uri": "s3://bucket/a.jsonl"}}}
SOUND = {"replicas": 1, "image": "image:1", "instance_type": "ml.p5.48xlarge", "recipe": "r.yaml"}
RECIPES = st.one_of(
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.fixed_dictionaries(
        {"run": st.fixed_dictionaries({"model_type": TEXTS, "model_name_or_path": SCALARS}), "training_config": VALUES}
    ),
)


def expanded(document: dict[str, Any], sources: RecipeSources) -> dict[str, Any] | None:
    try:
        return expand(document, sources)
    except SpecError:
        return None


@settings(max_examples=300)
@given(
    st.dictionaries(FIELDS, VALUES | st.just([CHANNEL]), max_size=5),
    RECIPES,
    st.dictionaries(NAMES, SCALARS, max_size=2),
    st.booleans(),
)
def test_only_our_error_is_raised_and_what_is_expanded_stays(
    fields: dict[str, Any], recipe: dict[str, Any], overrides: dict[str, Any], sound: bool
) -> None:
    document = {**SOUND, **fields} if sound else fields
    sources = RecipeSources(
        name="r",
        base=SourceText(place="r.yaml", text=recipe_yaml(recipe)),
        overrides=overrides,
        weights="s3://bucket/weights/",
    )
    found = expanded(document, sources)
    if found is not None:
        assert parse_spec(found).recipe is not None
        assert expand(found, sources) == found


@settings(max_examples=200)
@given(st.dictionaries(FIELDS, VALUES, max_size=5), VALUES)
def test_a_spec_that_is_not_resolved_yet_raises_our_error_or_none(fields: dict[str, Any], recipe: Any) -> None:
    document = {**SOUND, **fields, "recipe": recipe}
    for check in (requested_recipe, check_elsewhere, start_input):
        try:
            check(document)
        except SpecError:
            continue
