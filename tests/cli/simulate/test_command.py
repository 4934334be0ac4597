"""`kinema simulate`: files that it writes, what it prints, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kinema_cli.output import Format
from kinema_cli.simulate.command import SimulateOptions, run_simulate

TEXT = """
name: small
about: Two nodes for what fits on one.
duration: 15m
cloud: {types: [e2-standard-2, e2-standard-4]}
nodes: [{type: e2-standard-4, count: 2}]
workloads: [{name: web, cpu: 300m, memory: 256Mi, replicas: 3}]
phases: [{name: late, start: 10m, end: 15m}]
"""


def options(directory: Path, *policies: str, text: str = TEXT, output: Format = Format.TABLE) -> SimulateOptions:
    """Options on a scenario file that is written."""
    file = directory / "small.yaml"
    file.write_text(text)
    return SimulateOptions(scenario=file, policies=policies, seed=5, work=None, out=directory / "out", output=output)


class _Outside(HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note addresses."""
        self.found += [
            value for name, value in attrs if name in {"src", "href"} and value and not value.startswith("#")
        ]
        self.found += [tag] if tag in {"script", "link", "iframe"} else []


def test_everything_is_written_and_the_same_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures, samples, results, page and scenario; a second run writes the same bytes."""
    given = options(tmp_path, "none", "optimize-utilization,cluster-autoscaler")
    assert run_simulate(given) == 0
    printed = capsys.readouterr()
    assert "optimize-utilization" in printed.out
    assert "simulated hours an hour" in printed.err
    first = {path: path.read_bytes() for path in sorted(given.out.rglob("*")) if path.is_file()}
    names = {str(path.relative_to(given.out)) for path in first}
    assert names == {"results.json", "figures.csv", "samples.csv", "report.html", "scenario/small.yaml"}
    assert run_simulate(given) == 0
    assert {path: path.read_bytes() for path in first} == first


def test_figures_are_those_of_the_results(tmp_path: Path) -> None:
    """One row for each policy and phase, with the figures of the JSON file."""
    given = options(tmp_path, "none", "optimize-utilization")
    run_simulate(given)
    whole = json.loads((given.out / "results.json").read_text())
    assert (whole["schema"], whole["seed"]) == ("kinema.simulation/v1", 5)
    rows = list(csv.DictReader((given.out / "figures.csv").read_text().splitlines()))
    assert [(row["policy"], row["phase"]) for row in rows] == [
        (policy, phase) for policy in ("none", "optimize-utilization") for phase in ("whole", "late")
    ]
    assert float(rows[3]["usd"]) == whole["results"][1]["phases"]["late"]["usd"]
    assert float(rows[3]["mean_usd_per_hour"]) < float(rows[1]["mean_usd_per_hour"])


def test_the_page_stands_alone_and_marks_the_best(tmp_path: Path) -> None:
    """Nothing is loaded from elsewhere; the cheaper policy has the star; the command repeats the run."""
    given = options(tmp_path, "none", "optimize-utilization")
    run_simulate(given)
    page = (given.out / "report.html").read_text()
    outside = _Outside()
    outside.feed(page)
    assert outside.found == []
    assert "http" not in re.sub(r"http://www\.w3\.org/[^\"]*", "", page)
    head = re.findall(r"<tr><th scope=\"col\"></th>(.*?)</tr>", page)[0]
    assert re.findall(r"<th[^>]*>([^<]*)", head) == ["none", "optimize-utilization"]
    cost = re.findall(r"<tr><th scope=\"row\">cost<span>paid in all</span></th>(.*?)</tr>", page, re.DOTALL)[0]
    assert re.findall(r"class=\"([^\"]*)\"", cost) == ["n", "n best"]
    command = "kinema simulate small.yaml --policy none --policy optimize-utilization --seed 5 --out again"
    assert command in page
    assert page.count("<figure") >= 5
    # A phone shows a drawing of its own, which need not be scrolled; no id occurs twice.
    assert page.count('<div class="narrow"><svg') == page.count('<div class="wide"><svg') == page.count("<figure")
    ids = re.findall(r"\sid=\"([^\"]*)\"", page)
    assert len(ids) == len(set(ids))
    assert "Cost over disruption by policy: none: 0 pods moved" in page


def test_results_are_printed_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the samples, which are in the files."""
    run_simulate(options(tmp_path, "none", output=Format.JSON))
    [found] = json.loads(capsys.readouterr().out)
    assert found["policy"] == "none"
    assert "samples" not in found


@pytest.mark.parametrize(
    ("policies", "text", "code", "expected"),
    [
        (("best",), TEXT, 2, "--policy best: no such policy; choose from kinema, thesis, cluster-threshold"),
        ((",",), TEXT, 2, "--policy is missing"),
        (("none",), "", 2, "name a SCENARIO, or a recording with --from-recording, one of both"),
        (("none", "none"), TEXT, 2, "--policy none is given twice"),
        (("none",), TEXT.replace("duration", "length"), 1, "unknown key length"),
        (("none",), TEXT.replace("300m", "lots"), 1, "workloads[0].cpu: expected an amount"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policies: tuple[str, ...], text: str, code: int, expected: str
) -> None:
    """One line that names what is wrong; nothing is written."""
    given = options(tmp_path, *policies, text=text)
    given = given if text else replace(given, scenario=None)
    assert run_simulate(given) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert expected in error
    assert not (given.out / "results.json").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is in its place: nothing is simulated."""
    given = options(tmp_path, "none")
    given.out.write_text("")
    assert run_simulate(given) == 1
    assert f"--out {given.out}" in capsys.readouterr().err


def test_an_annotation_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, with workload and value: its requests stay, whatever the annotation was to change."""
    text = TEXT.replace("replicas: 3}", "replicas: 3, annotations: {kinema.io/rightsizing-risk: lots}}")
    assert run_simulate(options(tmp_path, "kinema", "none", text=text)) == 0
    said = capsys.readouterr().err
    assert said.count('Deployment/shop/web: kinema.io/rightsizing-risk: "lots" cannot be read') == 1
