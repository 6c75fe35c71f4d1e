"""On PYTHONPATH: an interpreter in which PyTorch is not installed."""

import sys
from importlib.machinery import PathFinder


class _Finder(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname.partition(".")[0] == "torch" else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = _Finder
