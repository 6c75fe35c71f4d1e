from __future__ import annotations

import json

import pytest

from muster.control.runtime.function import measure, time_left
from tests.memory import VirtualClock


def test_a_measured_value_is_one_series_whichever_function_measures(capsys, monkeypatch):
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "muster-react")
    measure("RerunsWithinHour", 3, job_prefix="muster")
    line = json.loads(capsys.readouterr().out)
    [directive] = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Muster"
    assert directive["Dimensions"] == [["service"]]
    assert directive["Metrics"] == [{"Name": "RerunsWithinHour", "Unit": "Count"}]
    assert (line["service"], line["RerunsWithinHour"]) == ("muster", [3.0])


@pytest.mark.parametrize(("seconds", "usable"), [(900, 855), (15, 14.25)])
def test_a_part_of_a_functions_time_is_kept_for_writing_its_result(seconds, usable):
    """Whatever its time-out is, a function has time for its work."""

    class Invocation:
        def get_remaining_time_in_millis(self):
            return seconds * 1000

    with VirtualClock().install():
        assert time_left(Invocation()).remaining == pytest.approx(usable)
