"""What `python -m bench structure` counts and must stay zero."""

from bench.structure.metrics import METRICS
from bench.structure.sources import read_sources


def test_no_files_import_each_other_in_a_circle() -> None:
    [cycles] = [metric for metric in METRICS if metric.key == "cycles"]
    assert [found.text for found in cycles.find(read_sources())] == []
