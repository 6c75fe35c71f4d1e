"""The places of an embedded cloud as its settings name them."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from muster.client.cli.program import app
from muster.local import Settings
from muster.local.faults import CapacityError, DarkRegion, LostNode
from muster.local.service.fault_book import FaultBook
from muster.options.places.local.place_settings import PlacesSettings


def test_a_place_is_named_with_its_region_and_perhaps_an_account() -> None:
    settings = PlacesSettings.model_validate({"add": ["oregon=us-west-2", "tokyo=ap-northeast-1/210987654321"]})
    found = {name: (place.region, place.account_id) for name, place in settings.places.items()}
    assert found == {"oregon": ("us-west-2", None), "tokyo": ("ap-northeast-1", "210987654321")}
    started = Settings.model_validate_json(Settings(services={"places": settings}).model_dump_json())
    assert started.services["places"] == settings


@pytest.mark.parametrize(
    "written", ["oregon", "oregon=west", "tokyo=ap-northeast-1/21", "home=us-west-2", "A=us-west-2"]
)
def test_what_is_no_place_is_refused(written: str) -> None:
    with pytest.raises(ValidationError):
        PlacesSettings.model_validate({"add": [written]})


def test_a_fault_fires_in_its_place() -> None:
    book = FaultBook()
    oregon = book.at("oregon")
    book.add(CapacityError(place="oregon"))
    book.add(DarkRegion(place="*", count=1))
    book.add(LostNode())
    assert book.take(CapacityError, lambda _: True) is None
    assert oregon.take(CapacityError, lambda _: True) is not None
    assert oregon.take(LostNode, lambda _: True) is None  # clusters are at home
    assert book.find(DarkRegion, lambda _: True) is not None
    assert oregon.take(DarkRegion, lambda _: True) is not None
    assert book.find(DarkRegion, lambda _: True) is None
    assert [report.fired for report in book.report()] == [1, 1, 0]


def test_a_wrong_place_is_told_before_the_cloud_starts(tmp_path: Path) -> None:
    for place, words in (("a", "'a' is no place"), ("home=eu-west-1", "home is the name of the cloud's own account")):
        arguments = ["local", "up", "--state", str(tmp_path), "--places", "--place", place]
        answer = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
        assert (answer.exit_code, words in answer.output) == (2, True), answer.output
    assert not list(tmp_path.iterdir())
