"""The compiled kernel: codecs, checksums, the sums of a mean and the outer step, for Linux on x86-64 and arm64.

`kernel.c` is loaded with ctypes, so that one library serves every version of Python. Where there is none for a machine,
NumPy computes the same bits.
"""

from muster.replica.kernel.calls import Format, Kernel
from muster.replica.kernel.library import kernel

__all__ = ["Format", "Kernel", "kernel"]
