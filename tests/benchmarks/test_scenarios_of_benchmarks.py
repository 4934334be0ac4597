"""Scenarios that benchmarks make of traces and of start states."""

from __future__ import annotations

from pathlib import Path

from benchmarks.faithful import as_recording
from benchmarks.starts import Start
from benchmarks.week import DAY, arrivals, scenario, series
from tests.support.builders import cluster, deployed, node, offer


def test_a_week_is_cut_out_of_a_trace(tmp_path: Path) -> None:
    """Pods from before it run from its beginning for what is left, later ones are left out, large ones counted."""
    file = tmp_path / "pods.csv"
    head = "name,cpu_milli,memory_mib,creation_time,deletion_time"
    rows = ["before,1000,512,0,100", "running,2000,1024,50,400", "new,500,256,250,", "late,1,1,700,800"]
    file.write_text("\n".join([head, *rows, "huge,96000,1024,250,300"]))
    trace, left = arrivals(file, 200, 600)
    assert trace.decode().splitlines()[1:] == ["0,200,2000,1024", "50,350,500,256"]
    assert left == 1


def test_series_and_pods_make_a_scenario(tmp_path: Path) -> None:
    """Percent become millicores; the first row is the beginning."""
    file = tmp_path / "cpu.csv"
    file.write_text("timestamp,value\n2014-02-14 14:30:00,50\n2014-02-14 14:35:00,120\n")
    loaded = scenario(b"at,lasts,cpu_m,memory_mi\n0,60,100,64", [("usage/cpu.csv", series(file))], 1)
    assert loaded.series["usage/cpu.csv"] == ((0, 1000, None), (300_000, 2000, None))
    assert loaded.arrivals[0].lasts_ms == 60_000
    assert loaded.scenario.duration == f"{DAY // 86_400}d"


def test_a_start_state_becomes_the_beginning() -> None:
    """Every node, with every pod where it is."""
    start = Start(cluster(node("n1"), node("n2"), *deployed("web", ["n1", "n2", "n2"])), (offer(),))
    found = as_recording("small", start, 30).scenario
    assert [one.name for one in found.nodes] == ["n1", "n2"]
    assert [one.places for one in found.workloads] == [{"n1": 1, "n2": 2}]
    assert found.duration == "1800s"
