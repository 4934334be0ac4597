"""`kinema simulate`: files that it writes, what it prints, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kinema_cli.output import Format
from kinema_cli.simulate.command import SimulateOptions, run_simulate
from kinema_sim.simulate import pipeline

TEXT = """
name: small
about: Two nodes for what fits on one.
duration: 15m
cloud: {types: [e2-standard-2, e2-standard-4]}
nodes: [{type: e2-standard-4, count: 2}]
workloads: [{name: web, cpu: 300m, memory: 256Mi, replicas: 3}]
phases: [{name: late, start: 10m, end: 15m}]
"""
LOSS = """
name: loss
duration: 2h
cloud: {types: [e2-standard-4]}
nodes: [{type: e2-standard-4, name: n-1}, {type: e2-standard-4, name: n-2}]
workloads: [{name: web, cpu: 300m, memory: 256Mi, replicas: 12}]
faults: [{kind: node-lost, node: n-1, at: 30m}]
phases: [{name: before, start: 0s, end: 30m}, {name: loss, start: 30m, end: 1h}, {name: after, start: 1h, end: 2h}]
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


def test_a_phase_counts_what_happened_in_it(tmp_path: Path) -> None:
    """In the table, the results and the page: pods of a node that is lost as a phase begins belong to that phase."""
    given = options(tmp_path, "none", "optimize-utilization", text=LOSS)
    assert run_simulate(given) == 0
    rows = list(csv.DictReader((given.out / "figures.csv").read_text().splitlines()))
    results = json.loads((given.out / "results.json").read_text())["results"]
    for result in results:
        whole, *phases = [row for row in rows if row["policy"] == result["policy"]]
        for name in ("evictions", "disruptions"):
            counts = [int(row[name]) for row in phases]
            assert int(whole[name]) == sum(counts) == result[name] == result["whole"][name]
            assert counts == [result["phases"][row["phase"]][name] for row in phases]
    lost = [int(row["disruptions"]) for row in rows if row["policy"] == "none"]
    assert lost[0] == lost[2] > 0
    moved = [row["phase"] for row in rows if row["policy"] == "optimize-utilization" and int(row["evictions"])]
    assert moved == ["whole", "before"]
    assert "disrupted" in (given.out / "report.html").read_text().split("Phase loss")[1].split("Phase after")[0]


def test_the_floor_leaves_out_how_the_pods_of_the_beginning_come_up(tmp_path: Path) -> None:
    """None is Ready when the run begins; what a lost node takes later counts."""
    given = options(tmp_path, "none", text=LOSS)
    run_simulate(given)
    rows = {row["phase"]: row for row in csv.DictReader((given.out / "figures.csv").read_text().splitlines())}
    assert float(rows["before"]["floor"]) == float(rows["after"]["floor"]) == 1.0
    assert 0.0 < float(rows["whole"]["floor"]) == float(rows["loss"]["floor"]) < 1.0


def test_time_is_in_hours_and_minutes_since_the_simulation_began(tmp_path: Path) -> None:
    """Two hours are 2:00, not 120:00."""
    given = options(tmp_path, "none", text=LOSS)
    run_simulate(given)
    page = (given.out / "report.html").read_text()
    assert "cluster time since the simulation began, h:min" in page
    assert ">2:00<" in page
    assert ">120:00<" not in page


class _Interrupted:
    """A solve during which an interrupt comes, for once."""

    def __init__(self) -> None:
        self.went_on = False

    def __call__(self, *_: object) -> object:
        """Interrupt this process."""
        os.kill(os.getpid(), signal.SIGINT)
        self.went_on = True
        raise AssertionError("the solve went on")


@pytest.mark.parametrize("done", [("none", "optimize-utilization"), ()])
def test_an_interrupt_keeps_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, done: tuple[str, ...]
) -> None:
    """It ends a solve where it is; finished policies are written as if only they had been asked for, if any is."""
    solve = _Interrupted()
    monkeypatch.setattr(pipeline, "solve", solve)
    given = options(tmp_path, *done, "kinema", "karpenter")
    handler = signal.getsignal(signal.SIGINT)
    assert run_simulate(given) == 130
    assert not solve.went_on
    assert signal.getsignal(signal.SIGINT) is handler
    said = capsys.readouterr()
    assert said.err.splitlines()[-1] == "error: interrupted: not simulated to the end: kinema, karpenter"
    written = {str(path.relative_to(given.out)): path.read_bytes() for path in given.out.rglob("*") if path.is_file()}
    if not done:
        assert written == {}
        assert said.out == ""
        return
    assert "optimize-utilization" in said.out
    alone = replace(given, policies=done, out=tmp_path / "alone")
    assert run_simulate(alone) == 0
    for name in ("results.json", "figures.csv", "samples.csv"):
        assert written.pop(name) == (alone.out / name).read_bytes()
    assert written.keys() == {"report.html", "scenario/small.yaml"}
    assert "--policy karpenter" in written["report.html"].decode(), "the command repeats the whole run"


def test_an_interrupt_leaves_no_file_by_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older result stays as it was when the writing of the new one is interrupted."""
    given = options(tmp_path, "none")
    run_simulate(given)
    before = {path: path.read_bytes() for path in given.out.rglob("*") if path.is_file()}
    write = Path.write_bytes

    def half(self: Path, data: bytes) -> int:
        write(self, data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(KeyboardInterrupt):
        run_simulate(replace(given, seed=6))
    assert {path: path.read_bytes() for path in given.out.rglob("*") if path.is_file()} == before
