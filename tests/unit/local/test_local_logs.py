"""A log file on its way to CloudWatch Logs."""

from pathlib import Path

from muster.local.sagemaker.log_shipping import LogShipper, MetricScraper


def shipper(path: Path, *regexes: tuple[str, str]) -> tuple[LogShipper, list[str], dict[str, tuple[float, float]]]:
    shipped: list[str] = []
    metrics: dict[str, tuple[float, float]] = {}
    scraper = MetricScraper([{"Name": name, "Regex": regex} for name, regex in regexes], metrics)
    return LogShipper(path, lambda events: shipped.extend(line for _, line in events), scraper), shipped, metrics


def test_lines_are_shipped_whole_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    ship, shipped, _ = shipper(file)
    ship.pump()
    assert shipped == []
    file.write_bytes(b"one\ntw")
    ship.pump()
    assert shipped == ["one"]
    with file.open("ab") as log:
        log.write(b"o\n\nthree \xff")
    ship.pump()
    ship.pump(final=True)
    assert shipped == ["one", "two", "three �"]
    file.write_bytes(b"x" * (600 * 1024))
    ship, shipped, _ = shipper(file)
    ship.pump(final=True)
    assert [len(line) <= 256 * 1024 for line in shipped] == [True] * 3
    assert sum(map(len, shipped)) == 600 * 1024


def test_the_last_value_of_a_metric_stays(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("loss=3 acc=x\nloss=2.5\nnothing\nloss=abc\n")
    ship, _, metrics = shipper(file, ("loss", r"loss=(\S+)"), ("acc", r"acc=(\S+)"))
    ship.pump()
    assert metrics["loss"][0] == 2.5
    assert "acc" not in metrics
