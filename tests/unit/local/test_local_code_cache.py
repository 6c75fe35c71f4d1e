"""Code of functions is unpacked once and shared."""

import shutil
import zipfile
from pathlib import Path

import pytest

from muster.local.ministack.code_cache import CodeCache


def archive(path: Path, text: str) -> Path:
    with zipfile.ZipFile(path, "w") as content:
        content.writestr(zipfile.ZipInfo("package/module.py"), text)  # equal text makes an equal archive, at any time
    return path


def unpack(cache: CodeCache, source: Path, target: Path) -> Path:
    target.mkdir(parents=True)
    with cache.zipfile_module().ZipFile(source) as content:
        content.extractall(target)
    return target


def test_a_process_that_clears_its_folder_leaves_the_code_to_the_others(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "cache")
    source = archive(tmp_path / "x.zip", "a = 1")
    unpack(cache, source, tmp_path / "first" / "code")
    second = unpack(cache, source, tmp_path / "second" / "code")
    other = unpack(cache, archive(tmp_path / "z.zip", "a = 2"), tmp_path / "z" / "code")
    assert (tmp_path / "first" / "code").resolve() == second.resolve() != other.resolve()
    shutil.rmtree(tmp_path / "first")
    assert (second / "package/module.py").read_text() == "a = 1"


def test_a_damaged_archive_leaves_nothing_behind_that_would_be_taken_for_code(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path / "cache")
    source = archive(tmp_path / "x.zip", "a = 1" * 1_000)
    whole = source.read_bytes()
    source.write_bytes(whole.replace(b"a = 1a", b"b = 2b", 1))
    with pytest.raises(zipfile.BadZipFile):
        unpack(cache, source, tmp_path / "first" / "code")
    source.write_bytes(whole)
    assert (unpack(cache, source, tmp_path / "second" / "code") / "package/module.py").exists()
