"""The compiled kernel makes the same bits as NumPy. `tests/release/arm64` checks it for another processor."""

import ctypes
import platform
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from muster.infra.build_places import PACKAGE
from muster.infra.release.kernels import FOLDER
from muster.infra.release.kernels import compiled as compile_kernel
from muster.replica.codecs.base import Codec
from muster.replica.kernel import Format, Kernel, kernel
from muster.replica.kernel.calls import Destination, Rows, Source
from muster.replica.kernel.library import MACHINES, SOURCE, library_name
from muster.replica.wire.binary_format import compiled_rows
from muster.replica.wire.blocks import Blocks
from tests.support.kernels import CHECKS, CODECS, KEY


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """What this tree's source makes, whichever library lies beside it."""
    if shutil.which("cc") is None or platform.machine() not in MACHINES:
        pytest.skip("needs a C compiler, and a machine that the kernel is for")
    library = tmp_path_factory.mktemp("native") / library_name(platform.machine())
    compile_kernel(["cc"], platform.machine(), PACKAGE / FOLDER / SOURCE, library)
    return Kernel(ctypes.CDLL(str(library)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_kernel_makes_the_same_bits_as_numpy(compiled: Kernel, check: Callable[[Kernel], None]) -> None:
    check(compiled)


def test_memory_of_other_sizes_is_refused(compiled: Kernel) -> None:
    rows = Rows(Format.FP32, np.empty((2, 4 + 4 * 256), np.uint8), 256, 0)
    values, limit = np.zeros(512, np.float32), np.float32(1)
    assert compiled.encode(rows, Source(values), limit)
    for wrong in (values[:511], np.zeros(1024, np.float32)):
        with pytest.raises(ValueError, match="do not fit"):
            compiled.encode(rows, Source(values), limit, error=wrong)
        with pytest.raises(ValueError, match="do not fit"):
            compiled.decode(rows, 512, limit, Destination(wrong))
    with pytest.raises(ValueError, match="contiguous"):
        compiled.decode(rows, 512, limit, Destination(np.zeros(1024, np.float32)[::2]))


def is_compiled(codec: Codec, count: int) -> bool:
    blocks = Blocks(count, codec)
    rows = np.empty((1, blocks.record_bytes), np.uint8)
    return compiled_rows(KEY, blocks, range(1), rows) is not None


def test_the_kernel_has_every_block_but_the_smallest() -> None:
    assert kernel() is not None or not list((PACKAGE / FOLDER).glob("*.so"))
    if kernel() is not None:
        assert [name for name, codec in CODECS.items() if not is_compiled(codec, 12_288)] == []
    # XXH3 is another function for up to 240 bytes.
    assert not is_compiled(CODECS["int4"], 256)
