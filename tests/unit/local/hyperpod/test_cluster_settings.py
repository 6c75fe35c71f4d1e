"""The settings of the cluster among those of the embedded cloud, and what other services are refused."""

import pytest
from pydantic import ValidationError

from muster.local import Settings
from muster.options.hyperpod.local.cluster_settings import ClusterSettings


def test_settings_of_a_service_reach_the_process_of_the_cloud() -> None:
    cluster = ClusterSettings(name="ml", nodes=2)
    found = Settings.model_validate_json(Settings(services={"hyperpod": cluster}).model_dump_json())
    assert found.services == {"hyperpod": cluster}


@pytest.mark.parametrize(
    ("services", "words"),
    [({"hyper": {}}, "no option adds hyper; there are: .*hyperpod"), ({"hyperpod": {"nodes": 0}}, "nodes")],
)
def test_what_no_service_takes_is_refused(services: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Settings.model_validate({"services": services})
