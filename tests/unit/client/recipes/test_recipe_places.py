"""What a user names as a recipe: paths are those of files beside the spec, URIs and ARNs stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.recipes.recipe_places import named_recipe, recipe_beside

ACCESS_POINT = "arn:aws:s3:us-east-1:123456789012:accesspoint/recipes/llama.yaml"


@pytest.mark.parametrize("place", ["s3://bucket/a.yaml", "S3://bucket/a.yaml", ACCESS_POINT, "https://host/a.yaml"])
def test_a_uri_in_a_spec_stays_as_it_is(place: str) -> None:
    assert recipe_beside(place, Path("jobs")) == place
    assert recipe_beside({"base": place, "override_spec": place}, Path("jobs")) == {
        "base": place,
        "override_spec": place,
    }
    assert named_recipe(place).request == {"base": place}


def test_a_path_in_a_spec_is_beside_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert recipe_beside("a.yaml", Path("jobs")) == "jobs/a.yaml"
    assert recipe_beside("/a.yaml", Path("jobs")) == "/a.yaml"
    assert recipe_beside({"checkout": "~/recipes", "base": "llama/a"}, Path("jobs")) == {
        "checkout": "/home/me/recipes",
        "base": "llama/a",
    }
