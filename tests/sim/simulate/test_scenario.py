"""Scenario files: what is refused, with its place and what is expected there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinema_sim.simulate.scenario import ScenarioError, milliseconds, offers_of, read_scenario

GOOD = """
name: small
duration: 10m
cloud: {types: [e2-standard-2, e2-standard-4]}
nodes: [{type: e2-standard-2}]
workloads: [{name: web, cpu: 100m, memory: 64Mi, replicas: 2}]
"""


def written(tmp_path: Path, text: str) -> Path:
    """A scenario file."""
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("old", "new", "place", "expected"),
    [
        ("duration: 10m", "duration: 10 minutes", "duration", "expected a duration such as 90s"),
        ("duration: 10m", "duration: 10m\nspeed: 3", "", "unknown key speed"),
        ("name: small\n", "", "", "the key name is missing"),
        ("replicas: 2", "replicas: -1", "workloads[0].replicas", "expected"),
        ("replicas: 2", "replicas: two", "workloads[0].replicas", "expected"),
        ("replicas: 2", "replica: 2", "workloads[0]", "unknown key replica"),
        ("replicas: 2", "replicas: [[5m, 2], [1m, 3]]", "workloads[0].replicas", "by rising time"),
        ("replicas: 2", "usage: nowhere.csv", "workloads[0].usage", "No such file"),
        ("cpu: 100m", "cpu: much", "workloads[0].cpu", "expected an amount such as 250m"),
        ("memory: 64Mi", "memory: 64 Mi", "workloads[0].memory", "expected an amount such as 512Mi"),
        ("{type: e2-standard-2}", "{type: m5.large}", "nodes[0].type", "expected one of"),
        ("{type: e2-standard-2}", "{type: e2-standard-2, zone: mars}", "nodes[0].zone", "expected one of"),
        ("nodes: [{type: e2-standard-2}]", "nodes: []", "nodes", "expected one node or more"),
        ("nodes:", "faults: [{kind: zone-down, at: 1m, lasts: 1m}]\nnodes:", "faults[0].zone", "expected the zone"),
        ("nodes:", "faults: [{kind: cordon, at: 1m, node: n9}]\nnodes:", "faults[0].node", "expected a node of the"),
        ("nodes:", "faults: [{kind: node-lost, at: 1m}]\nnodes:", "faults[0].node", "expected the node of the"),
        ("{type: e2-standard-2}", "{type: e2-standard-2, taints: [blue]}", "nodes[0].taints[0]", "cannot be read"),
        ("{type: e2-standard-2}", "{type: e2-standard-2, name: a, count: 2}", "nodes[0].name", "expected a name of"),
        ("replicas: 2", "places: {n9: 1}", "workloads[0].places", "expected a node of the scenario"),
        ("nodes:", "faults: [{kind: flood, at: 1m, lasts: 1m}]\nnodes:", "faults[0].kind", "flood"),
        ("nodes:", "phases: [{name: a, start: 5m, end: 20m}]\nnodes:", "phases[0]", "expected start before end"),
        ("nodes:", "applications: [{name: teastore, users: wild}]\nnodes:", "applications[0].users", "expected points"),
        ("nodes:", "traces: [{file: nowhere.csv}]\nnodes:", "traces[0].file", "No such file"),
        ("name: small", "name: [", "", "line"),
        ("replicas: 2", "pod: {nodeSelectr: {a: b}}", "workloads[0].pod.nodeSelectr", "expected one of affinity, "),
        ("replicas: 2", "pod: {containers: []}", "workloads[0].pod.containers", "expected one of affinity, "),
        (
            "replicas: 2",
            "pod: {affinity: {nodeAffinty: {a: b}}}",
            "workloads[0].pod.affinity.nodeAffinty",
            "unknown key",
        ),
        ("replicas: 2", "pod: {tolerations: [{ky: a}]}", "workloads[0].pod.tolerations[0].ky", "unknown key"),
        ("replicas: 2", "pod: {tolerations: [{operator: Is}]}", "workloads[0].pod.tolerations[0].operator", "Exists"),
        ("replicas: 2", "pod: {priority: high}", "workloads[0].pod.priority", "expected a whole number"),
        ("replicas: 2", "pod: {overhead: {cpu: much}}", "workloads[0].pod.overhead.cpu", "write a number of 0 or more"),
        (
            "replicas: 2",
            "pod: {initContainers: [{name: a, resources: {requests: {memory: 1x}}}]}",
            "workloads[0].pod.initContainers[0].resources.requests.memory",
            "write a number of 0 or more",
        ),
        ("replicas: 2", "pod: &a {affinity: *a}", "workloads[0].pod.affinity", "stands for what it is a part of"),
        ("replicas: 2", "cpu: 200m", "workloads[0].cpu: line 6", "there twice, first in line 6"),
        ("name: small", "name: small\nname: large", "name: line 3", "there twice, first in line 2"),
        ("duration: 10m", "duration: 0s", "duration", "expected more than 0"),
        ("duration: 10m", "duration: 99999999999d", "duration", "expected a duration of at most 3650d"),
        ("duration: 10m", f"duration: {'9' * 400}d", "duration", "expected a duration of at most 3650d"),
        ("duration: 10m", f"duration: 10m\nidle_percent: {'9' * 5000}", "", "integer string conversion"),
        ("duration: 10m", "duration: 600", "duration", "got 600: write its unit, as in 600s"),
        ("replicas: 2", "replicas: [[30, 2]]", "workloads[0].replicas[0][0]", "write its unit, as in 30s"),
        (
            "replicas: 2",
            "replicas: 1000000000000",
            "workloads[0].replicas",
            "expected a whole number of at most 100000",
        ),
        ("replicas: 2", "replicas: 2000, count: 100", "workloads[0].count", "expected at most 100000 pods"),
        ("{type: e2-standard-2}", "{type: e2-standard-2, count: 1000000000000}", "nodes[0].count", "at most 100000"),
        ("replicas: 2", "memory_limit: 32Mi", "workloads[0].memory_limit", "expected 64Mi or more, the memory that"),
        ("replicas: 2", "cpu_limit: 50m", "workloads[0].cpu_limit", "expected 100m or more, the cpu that"),
        ("replicas: 2", "replicas: [[11m, 3]]", "workloads[0].replicas", "a first point within 10m, got 11m"),
        ("replicas: 2", "replicas: []", "workloads[0].replicas", "one at least"),
        ("nodes:", "applications: [{name: teastore, users: []}]\nnodes:", "applications[0].users", "one at least"),
        (
            "nodes:",
            "phases: [{name: a, start: 1m, end: 2m}, {name: a, start: 2m, end: 3m}]\nnodes:",
            "phases[1].name",
            "'a' is taken",
        ),
        ("cpu: 100m", "cpu: .nan", "workloads[0].cpu", "expected an amount such as 250m"),
        ("name: small", "name: 5", "name", "expected a text, got a whole number: put it in quotes"),
        ("name: small", "1: small", "", "expected keys that are text"),
        ("name: small", "name: Small", "name", "expected small letters"),
        ("name: small", "name: 2020-13-45", "", "month must be in 1..12"),
        (
            "nodes:",
            "faults: [{kind: earthquake, at: 1m}]\nnodes:",
            "faults[0].kind",
            "expected one of zone-down, stock-out, node-lost, cordon, got 'earthquake'",
        ),
        ("replicas: 2", "spread: rack", "workloads[0].spread", "expected one of zone, node, got 'rack'"),
        ("nodes:", "traces: [{file: a, speed: .nan}]\nnodes:", "traces[0].speed", "expected a number above 0"),
        ("replicas: 2", "replicas: two", "workloads[0].replicas", "expected a whole number or a list, got a text"),
    ],
)
def test_a_fault_names_file_place_and_what_is_expected(
    tmp_path: Path, old: str, new: str, place: str, expected: str
) -> None:
    """One line, the file first."""
    assert old in GOOD
    file = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ScenarioError) as raised:
        read_scenario(file)
    text = str(raised.value)
    assert text.startswith(str(file))
    assert "\n" not in text
    assert place in text
    assert expected in text


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "null\n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    """With what it should contain."""
    with pytest.raises(ScenarioError, match="the file is empty; expected a scenario: name, duration"):
        read_scenario(written(tmp_path, text))


def test_amounts_may_be_numbers_as_in_kubernetes(tmp_path: Path) -> None:
    """Of CPU in cores, of memory in bytes; elsewhere a number stays one."""
    text = GOOD.replace("cpu: 100m, memory: 64Mi", "cpu: 0.25, memory: 67108864, cpu_limit: 1")
    text += "arrivals: [{at: 1m, lasts: 1m, cpu: 1}]\n"
    loaded = read_scenario(written(tmp_path, text))
    [workload] = loaded.scenario.workloads
    assert (workload.cpu, workload.memory, workload.cpu_limit, workload.replicas) == ("0.25", "67108864", "1", 2)
    assert [row.cpu_m for row in loaded.arrivals] == [1000]


def test_keys_that_are_merged_in_may_be_overridden(tmp_path: Path) -> None:
    """As `<<` of YAML means: only a key that is written twice in one place is doubtful."""
    text = GOOD.replace("workloads: [{", "workloads: [&web {")
    text = text.replace("replicas: 2}]", "replicas: 2}, {<<: *web, name: api}]")
    workloads = read_scenario(written(tmp_path, text)).scenario.workloads
    assert [(one.name, one.cpu) for one in workloads] == [("web", "100m"), ("api", "100m")]


def test_fields_of_pods_that_the_simulator_heeds_are_taken(tmp_path: Path) -> None:
    """As they are."""
    pod = """{nodeSelector: {disk: fast}, priority: 5, terminationGracePeriodSeconds: 5,
      tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 60}],
      topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, labelSelector: {matchLabels: {app: web}}}],
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
        {topologyKey: zone, labelSelector: {matchLabels: {app: web}}}]}}}"""
    [workload] = read_scenario(written(tmp_path, GOOD.replace("replicas: 2", f"pod: {pod}"))).scenario.workloads
    assert set(workload.pod) == {
        "nodeSelector",
        "priority",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "affinity",
    }


def test_a_good_file_is_read_with_its_files(tmp_path: Path) -> None:
    """Traces and series are read beside it, and kept as they are."""
    (tmp_path / "pods.csv").write_text("at,lasts,cpu_m,memory_mi\n60,30,500,64\n0,30,250,64\n")
    (tmp_path / "cpu.csv").write_text("seconds,cpu_m\n0,10\n60,90\n")
    text = GOOD.replace("replicas: 2", "usage: cpu.csv") + "traces: [{file: pods.csv, speed: 2}]\n"
    loaded = read_scenario(written(tmp_path, text))
    assert [(row.at_ms, row.lasts_ms, row.cpu_m) for row in loaded.arrivals] == [
        (0, 15_000, 250),
        (30_000, 15_000, 500),
    ]
    assert loaded.series["cpu.csv"] == ((0, 10, None), (60_000, 90, None))
    assert set(loaded.sources) == {"scenario.yaml", "pods.csv", "cpu.csv"}


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("pods.csv", "at,lasts,cpu_m\n", "memory_mi is missing"),
        ("pods.csv", "at,lasts,cpu_m,memory_mi\n0,1,x,1\n", "line 2: expected numbers"),
        ("pods.csv", "at,lasts,cpu_m,memory_mi\n0,-1,1,1\n", "line 2: expected numbers from 0 on"),
        ("pods.csv", "at,lasts,cpu_m,memory_mi\n0,1,nan,1\n", "line 2: expected numbers from 0 on"),
        ("pods.csv", "at,lasts,cpu_m,memory_mi\n0,1,1,1e400\n", "line 2: expected numbers from 0 on"),
        ("pods.csv", "at,lasts,cpu_m,memory_mi\n0,1,1,1,9\n", "line 2: expected 4 values"),
    ],
)
def test_a_fault_in_a_trace_names_its_line(tmp_path: Path, name: str, text: str, fault: str) -> None:
    """The scenario's place, the file and the line."""
    (tmp_path / name).write_text(text)
    with pytest.raises(ScenarioError, match=r"traces\[0\].file pods.csv") as raised:
        read_scenario(written(tmp_path, GOOD + "traces: [{file: pods.csv}]\n"))
    assert fault in str(raised.value)


@pytest.mark.parametrize("figure", ["-5", "nan", "1e400"])
def test_usage_that_cannot_be_is_refused_by_its_line(tmp_path: Path, figure: str) -> None:
    """As in a trace."""
    (tmp_path / "cpu.csv").write_text(f"seconds,cpu_m\n0,10\n60,{figure}\n")
    with pytest.raises(ScenarioError, match=r"cpu.csv: line 3: expected numbers from 0 on"):
        read_scenario(written(tmp_path, GOOD.replace("replicas: 2", "usage: cpu.csv")))


def test_durations_add_up() -> None:
    """Days to seconds, in this order."""
    assert [milliseconds(text) for text in ("90s", "1h30m", "7d", "1.5s")] == [90_000, 5_400_000, 604_800_000, 1_500]


def test_own_machines_are_sold_without_a_reserve_where_they_say_so(tmp_path: Path) -> None:
    """On premises nothing is kept for a provider; the price list is on sale only where it is named."""
    own = "cloud: {zones: [dc], machines: [{type: xeon, vcpus: 24, memory: 24Gi, watts: 80, reserved: false}]}"
    text = GOOD.replace("cloud: {types: [e2-standard-2, e2-standard-4]}", own)
    text = text.replace("{type: e2-standard-2}", "{type: xeon, zone: dc}")
    [offer] = offers_of(read_scenario(written(tmp_path, text)).scenario.cloud)
    assert (offer.name, offer.allocatable) == ("xeon/dc/on-demand", (24_000, 24 * 2**30))
