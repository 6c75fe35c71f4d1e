"""Recipes in files and folders of this machine: what cannot be read, and what is never read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.client.recipes.local_files import LocalFiles
from muster.contract.recipe.checkout_recipe import checkout_recipe
from muster.contract.recipe.places import PlaceError


def refusal(place: Path, limit: int = 100) -> tuple[str, str]:
    with pytest.raises(PlaceError) as caught:
        LocalFiles().read_text(str(place), limit)
    return caught.value.statement, caught.value.remedy


def test_a_file_is_read_with_its_byte_order_mark_left_out(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: \xc3\xa9")
    assert LocalFiles().read_text(str(file), 100) == "a: é"


def test_a_file_that_is_missing_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "llama_sft.yaml").write_text("a: 1", encoding="utf-8")
    statement, remedy = refusal(tmp_path / "lama_sft.yaml")
    assert statement == f"{tmp_path}/lama_sft.yaml does not exist"
    assert remedy == f"did you mean {tmp_path}/llama_sft.yaml?"
    assert refusal(tmp_path / "zzz")[1] == "correct the path"
    assert refusal(tmp_path / "none" / "r.yaml")[1] == f"{tmp_path}/none does not exist either; correct the path"


def test_what_is_no_text_file_of_the_size_of_a_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * 101)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    # Opening it would wait for a writer.
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "large")[0].endswith("has more than 100 bytes")
    assert refusal(tmp_path / "binary")[0].endswith("is not UTF-8 text")
    assert refusal(tmp_path / "pipe")[0].endswith("is not a file")
    assert refusal(tmp_path)[0].endswith("is a folder")
    assert refusal(Path("a\0b"))[0] == r"'a\x00b' is no path"


def test_a_checkout_has_the_yaml_files_below_it_and_follows_no_link(tmp_path: Path) -> None:
    inside = tmp_path / "checkout" / "recipes" / "fine-tuning"
    inside.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.yaml").write_text("a: secret", encoding="utf-8")
    (inside / "a.yaml").write_text("a: 1", encoding="utf-8")
    (inside / "notes.txt").write_text("", encoding="utf-8")
    (inside / "link.yaml").symlink_to(outside / "secret.yaml")
    (inside / "folder").symlink_to(outside)
    checkout = LocalFiles().checkout(str(tmp_path / "checkout"))
    assert checkout.files() == ["recipes/fine-tuning/a.yaml"]
    for base in ("fine-tuning/link", "fine-tuning/folder/secret", "../outside/secret"):
        with pytest.raises(PlaceError):
            checkout_recipe(checkout, "checkout", base)
    with pytest.raises(PlaceError, match="is not a folder"):
        LocalFiles().checkout(str(tmp_path / "none")).files()
