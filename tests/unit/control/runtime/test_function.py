from __future__ import annotations

import json

from muster.control.runtime.function import measure


def test_a_measured_value_is_one_series_whichever_function_measures(capsys, monkeypatch):
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "muster-react")
    measure("RerunsWithinHour", 3, job_prefix="muster")
    line = json.loads(capsys.readouterr().out)
    [directive] = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Muster"
    assert directive["Dimensions"] == [["service"]]
    assert directive["Metrics"] == [{"Name": "RerunsWithinHour", "Unit": "Count"}]
    assert (line["service"], line["RerunsWithinHour"]) == ("muster", [3.0])
