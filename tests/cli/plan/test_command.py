"""`kinema plan` on snapshot files."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
import yaml
import zstandard
from tests.cli.bench import Bench, controllers, meta, node, pod, spread, text

from kinema_cli.plan import command
from kinema_core.events import Cost, Plan, Solve, Unplaced
from kinema_optimizer.errors import OptimizerError
from kinema_optimizer.planning import planner
from kinema_optimizer.solvers import stopping


def test_json_is_the_plan(bench: Bench) -> None:
    """The cheapest cluster is one m2; every pod is placed there, by surge, with costs to the cent."""
    result = bench.run("-o", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["schema"] == "kinema.plan/v1"
    assert (found["status"], found["cost"]["before"], found["cost"]["after"]) == ("optimal", 0.51, 0.09)
    assert found["cost"]["lower_bound"] == 0.09
    assert {(item["pod"], item["strategy"], item["from"]) for item in found["placements"]} == {
        (f"shop/web-{index}", "surge", f"n{index}") for index in range(3)
    }
    assert found["moves"] == 3


def test_where_no_search_is_made_the_time_that_one_takes_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that is over before anything is read: which one is not?"""
    monkeypatch.setattr(stopping, "LATE_SECONDS", 0.0)
    said = bench.run("-o", "json", "--time-limit", "0.001").stderr
    assert re.search(r"no search was made: .*; give --time-limit \d+ or longer", said)


def test_a_cluster_that_takes_long_to_read_has_more_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no limit is given; and counted work has none."""

    def limit(*arguments: str) -> float | None:
        made = json.loads(bench.run("-o", "json", *arguments).stdout)
        seconds: float | None = made["metadata"]["options"].get("time_limit")
        return seconds

    assert limit() == command.TIME_LIMIT
    assert limit("--work", "1") is None
    monkeypatch.setattr(command, "_READING_SHARE", 1e-9)
    assert (limit() or 0) > command.TIME_LIMIT
    assert limit("--time-limit", "7") == 7


def test_frontier_shows_what_parts_of_the_moves_bring(bench: Bench) -> None:
    """A new m2 takes the pod of one node, of two or of all: the table has a line for each, JSON the same points."""
    points = json.loads(bench.run("-o", "json").stdout)["frontier"]
    assert [(one["moves"], one["cost"]) for one in points] == [(1, 0.43), (2, 0.26), (3, 0.09)]
    said = bench.run().stdout
    assert re.search(r"Frontier .*\n.*\n +1 +33% +\$0\.43/h +19%", said)
    assert re.search(r" +3 +100% +\$0\.09/h +100%", said)


def test_yaml_says_the_same(bench: Bench) -> None:
    """YAML and JSON hold the same plan, the time that it took aside."""
    as_json = json.loads(bench.run("-o", "json").stdout)
    as_yaml = yaml.safe_load(bench.run("-o", "yaml").stdout)
    assert {**as_yaml, "solve": None} == {**as_json, "solve": None}


def test_table_tells_cost_per_hour_and_month(bench: Bench) -> None:
    """Cost and saving are told for an hour and for a month of 730 hours, by machine type too."""
    said = bench.run().stdout
    assert "$0.51/h → $0.09/h" in said
    assert "($372/month → $66/month)" in said
    assert "Saves $307/month (82%)" in said
    assert "-$372/month" in said


def test_table_tells_from_when_the_prices_are(bench: Bench) -> None:
    """The date in the catalog's remarks; without one that of the file, and how to write it down."""
    said = bench.run("--time-limit", "1").stdout
    assert "catalog.csv has no price date" in said
    bench.catalog.write_text("# prices of 2026-02-01\n" + bench.catalog.read_text())
    assert "of 2026-02-01 (catalog.csv)" in bench.run("--time-limit", "1").stdout


def test_table_goes_to_stdout_and_progress_to_stderr(bench: Bench) -> None:
    """What is printed can be piped; what is said on the way cannot get into it."""
    result = bench.run()
    assert result.exit_code == 0
    assert "3 → 1" in result.stdout
    assert "Deployment/shop/web" in result.stdout
    assert "planning" in result.stderr
    assert "planning" not in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("name", ["s.json.gz", "s.json.zst", "s.json"])
def test_compressed_snapshots_are_read(bench: Bench, name: str) -> None:
    """Plain, gzip and zstd files give the same plan."""
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(Path(name).suffix, bytes)
    path = bench.directory / name
    path.write_bytes(pack(text(spread())))
    assert json.loads(bench.run("-o", "json", snapshot=path).stdout)["cost"]["after"] == 0.09


def test_snapshot_from_a_pipe(bench: Bench) -> None:
    """A dash reads standard input."""
    result = bench.run("-o", "json", snapshot="-", given=text(spread()))
    assert result.exit_code == 0, result.stderr


def test_bare_pod_holds_its_node_and_is_named(bench: Bench) -> None:
    """What blocks more is said: the pod, the rule, and it stays in the plan."""
    bench.snapshot.write_bytes(text([*spread(), pod("lonely", "n1", of=None)]))
    result = bench.run()
    row = next(line for line in result.stdout.splitlines() if "shop/lonely" in line)
    assert re.split("  +", row)[0] == "pods without a controller"
    assert re.split("  +", row)[2:5] == ["1", "1", "1 node, $124/month"]
    found = json.loads(bench.run("-o", "json").stdout)
    assert [item["pod"] for item in found["held"]] == ["shop/lonely"]
    assert {"name": "n1", "action": "keep"}.items() <= next(n for n in found["nodes"] if n["name"] == "n1").items()


def test_pending_pod_that_fits_nowhere_still_gives_a_plan(bench: Bench) -> None:
    """A pod without a place is listed with its reason, and the exit code is 0 all the same."""
    bench.snapshot.write_bytes(text([*spread(), pod("huge", None, cpu="64")]))
    result = bench.run()
    assert result.exit_code == 0
    assert "Pods without a place" in result.stdout
    assert "shop/huge" in result.stdout


def test_node_that_stays_for_its_own_rule_is_named(bench: Bench) -> None:
    """A node without a held pod that may not be deleted is listed with its reason and what it costs."""
    kept = node("n1")
    kept["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    bench.snapshot.write_bytes(text([node("n0"), kept, *controllers(2), pod("web-0", "n0"), pod("web-1", "n1")]))
    said = bench.run().stdout
    row = next(line for line in said.splitlines() if "scale-down-disabled" in line)
    assert re.split("  +", row)[:4] == ["node rule", "not priced", "1", "1 node, $124/month"]


def test_progress_names_incumbent_bound_and_moves(bench: Bench) -> None:
    """The first plan found is told on standard error while the solver runs."""
    said = bench.run("-o", "json").stderr
    assert "$0.09/h" in said
    assert "moves" in said


def test_nothing_better_is_no_failure(bench: Bench) -> None:
    """A cluster that is as cheap as it can be gives a plan that says so."""
    bench.snapshot.write_bytes(text([node("n0", "m2", "1930m", "5Gi"), *controllers(1), pod("web-0", "n0")]))
    result = bench.run()
    assert result.exit_code == 0
    assert "nothing better" in result.stdout


def test_unreadable_object_is_reported_with_its_path(bench: Bench) -> None:
    """One object that cannot be read freezes its node and is named; the rest is planned."""
    broken = pod("broken", "n2")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    bench.snapshot.write_bytes(text([*spread(), broken]))
    result = bench.run()
    assert result.exit_code == 0
    assert "Pod shop/broken" in result.stdout
    assert "spec" in result.stdout
    assert "1 object could not be read" in result.stdout


def test_unreadable_node_is_left_out_of_the_figures_aloud(bench: Bench) -> None:
    """A node that cannot be read is neither counted nor priced, and the line with the count says so."""
    broken = node("n9")
    broken["status"]["allocatable"]["cpu"] = "-4"
    bench.snapshot.write_bytes(text([*spread(), broken]))
    assert "1 unreadable node neither counted nor priced" in bench.run().stdout


def test_file_without_pods_is_no_quiet_saving(bench: Bench) -> None:
    """Nodes alone all look empty: the plan says that it means nothing if there are pods."""
    bench.snapshot.write_bytes(text([node("n0")]))
    assert "the snapshot contains no pods" in bench.run().stdout


def test_an_unreadable_pod_is_a_pod(bench: Bench) -> None:
    """Where the only pod cannot be read, the file is not said to hold none."""
    broken = pod("broken", "n0")
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "-4"
    bench.snapshot.write_bytes(text([node("n0"), broken]))
    said = bench.run().stdout
    assert "the snapshot contains no pods" not in said
    assert "1 object could not be read" in said


def test_kinds_of_which_nothing_could_be_read_are_not_called_absent(bench: Bench) -> None:
    """There they are, and may forbid anything; of other kinds the file holds none."""
    budgets = [
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta(name, "shop")} for name in "ab"
    ]
    bench.snapshot.write_bytes(text([*spread(), *budgets]))
    said = bench.run().stdout
    assert "the snapshot contains poddisruptionbudgets (2), but none of them could be read\n" in said
    assert "the snapshot contains no namespaces;" in said


def test_pods_on_absent_nodes_are_no_quiet_saving(bench: Bench) -> None:
    """Where many pods run on nodes that are not in the file, no plan is made: it would save all that they need."""
    bench.snapshot.write_bytes(text([node("n0"), *controllers(2), pod("web-1", "n8"), pod("web-2", "n9")]))
    assert bench.fails().splitlines() == [
        "error: the cluster's state lacks 2 of 3 nodes, which its pods run on",
        "hint: take it again, with all nodes",
    ]
    others = [node(f"m{index}") for index in range(20)]
    bench.snapshot.write_bytes(text([*others, *controllers(1), pod("web-1", "n8")]))
    assert "1 pod on nodes that are missing" in bench.run().stdout


def test_names_command_no_terminal(bench: Bench) -> None:
    """Escape sequences and line breaks in a name are shown as what they are: characters that cannot be shown."""
    bench.snapshot.write_bytes(text([*spread(), node("\x1b[31mred"), pod("bare", "\x1b[31mred", of=None)]))
    result = bench.run("-o", "wide")
    assert "\x1b" not in result.stdout + result.stderr
    assert "�[31mred" in result.stdout


def test_ceiling_leaves_room(bench: Bench) -> None:
    """With a ceiling of half a node's room one m2 no longer suffices."""
    found = json.loads(bench.run("-o", "json", "--max-utilization", "50").stdout)
    assert found["cost"]["after"] > 0.09
    assert "50" in found["objective"]


def with_watts(bench: Bench) -> None:
    """The dearer machine draws less: the cheapest cluster is an m2, the one that draws least an m4."""
    rows = ("machine_type,vcpus,memory_gib,usd_per_hour,watts", "m2,2,8,0.09,90", "m4,4,16,0.17,60.5")
    bench.catalog.write_text("\n".join(rows) + "\n")


def test_energy_is_counted_in_watts(bench: Bench) -> None:
    """The plan draws least, says so in watts, and still tells what each node costs."""
    with_watts(bench)
    found = json.loads(bench.run("-o", "json", "--objective", "energy").stdout)
    assert found["cost"] == {"before": 181.5, "after": 60.5, "lower_bound": 60.5, "gap": 0.0, "unit": "W"}
    assert [item["usd_per_hour"] for item in found["nodes"] if item["action"] != "delete"] == [0.17]
    assert found["figures"]["usd_per_hour_before"] == 0.51
    assert found["figures"]["usd_per_hour_after"] == 0.17
    assert json.loads(bench.run("-o", "json").stdout)["cost"]["after"] == 0.09


def test_energy_table_tells_watts_and_money(bench: Bench) -> None:
    """People see both what was made small and what it costs."""
    with_watts(bench)
    said = bench.run("--objective", "energy").stdout
    assert "181.5 → 60.5 W" in said
    assert "$0.51/h → $0.17/h" in said


def test_energy_without_watts_lists_all_types(bench: Bench) -> None:
    """Every type on sale or in use without watts is named at once."""
    bench.catalog.write_text("machine_type,vcpus,memory_gib,usd_per_hour,watts\nm2,2,8,0.09,\nm4,4,16,0.17,0\n")
    said = bench.fails("--objective", "energy")
    assert "m2, m4" in said
    assert "watts" in said


def test_html_report_is_written(bench: Bench) -> None:
    """The report holds the plan's pictures and no section without content."""
    path = bench.directory / "plan.html"
    result = bench.run("--html", str(path))
    assert result.exit_code == 0
    html = path.read_text(encoding="utf-8")
    assert html.count("<svg") == 3  # nodes before and after, and the frontier
    assert re.search(r"USD per hour over moves, from 0\.51 with none: .*3 moves, 0\.09", html)
    assert "leaves: n0" in html
    assert re.search(r"snapshot of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC; prices: ", html)
    assert "Disruption audit" not in html


@pytest.mark.parametrize("option", ["--html", "--out"])
def test_file_that_cannot_be_written_is_told_before_anything_is_solved(bench: Bench, option: str) -> None:
    """A directory that is not there is one line with the option, and is not made."""
    missing = bench.directory / "nope"
    path = missing / "plan.html"
    said = bench.fails(option, str(path))
    assert said == f"error: {option} {path}: there is no directory {missing}: make it, or name another\n"
    assert not missing.exists()


def test_infeasible_exits_1_and_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that run now and fit nowhere are an error with a name in it, after the plan was printed."""
    none = Plan(
        status="infeasible",
        cost=Cost(before=0.51, after=0.51, lower_bound=0.0, gap=None),
        nodes=(),
        placements=(),
        unplaced=(Unplaced(pod="shop/web-0", uid="u", code="no-room", reason="needs 500m CPU"),),
        moves=0,
        restarts=0,
        solve=Solve(seconds=0.1, first_feasible_seconds=None, method="none", seed=0),
    )
    monkeypatch.setattr(planner, "plan_for", lambda *_, **__: none)
    result = bench.run()
    assert result.exit_code == 1
    assert "infeasible" in result.stdout
    assert "shop/web-0: needs 500m CPU" in result.stderr


def test_node_without_a_price_lists_all_of_them(bench: Bench) -> None:
    """All nodes without a price are named at once, so that one run suffices to mend the catalog."""
    odd = [node("x1", "odd"), node("x2", "strange"), node("x3", "odd")]
    bench.snapshot.write_bytes(text(odd))
    said = bench.fails()
    assert said.splitlines() == [
        "error: missing price: odd/a/on-demand (2 nodes: x1, x3)",
        "error: missing price: strange/a/on-demand (1 node: x2)",
        "hint: add the offers to the catalog, or annotate the nodes with kinema.io/usd-per-hour",
    ]
    del odd[0]["metadata"]["labels"]["node.kubernetes.io/instance-type"]
    bench.snapshot.write_bytes(text([odd[0]]))
    assert "unknown machine type, label node.kubernetes.io/instance-type is missing (1 node: x1)" in bench.fails()


def test_some_nodes_without_a_price_stay(bench: Bench) -> None:
    """A warning names them, and so does the table of what keeps nodes."""
    bench.snapshot.write_bytes(text([*spread(), node("x1", "odd")]))
    result = bench.run()
    assert result.exit_code == 0, result.output
    assert "missing price: odd/a/on-demand (1 node: x1); no plan deletes them" in result.stdout
    assert "its price is not known" in result.stdout


@pytest.mark.parametrize(("form", "in_result"), [("table", True), ("wide", True), ("json", False), ("yaml", False)])
def test_a_warning_is_shown_once(bench: Bench, form: str, in_result: bool) -> None:
    """Beside the result that it is about; a value for programs has it as data, and standard error tells the user."""
    bench.snapshot.write_bytes(text([*spread(), node("x1", "odd")]))
    result = bench.run("-o", form)
    assert result.stderr.count("warning: missing price: odd/a/on-demand") == (not in_result)
    assert result.stdout.count("missing price: odd/a/on-demand") == 1
    assert ("warning: " in result.stdout) == in_result


def test_warnings_come_with_the_error_where_no_plan_is_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is odd about the input may be why."""

    def refuse(*_: object, **__: object) -> None:
        raise OptimizerError("refused")

    monkeypatch.setattr(planner, "plan_for", refuse)
    bench.snapshot.write_bytes(text([*spread(), node("x1", "odd")]))
    *_, warned, refused = bench.fails().splitlines()
    assert warned.startswith("warning: ")
    assert refused == "error: refused"


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (None, "gone.json", "No such file"),
        (b"\x1f\x8b\x08broken", "s.json.gz", "cannot be unpacked"),
        (gzip.compress(text(spread()))[:-20], "s.json.gz", "cannot be unpacked"),
        (zstandard.ZstdCompressor().compress(text(spread()))[:30], "s.json.zst", "the file is damaged or cut off"),
        (text(spread()), "s.json.gz", "is not compressed as its name says"),
        (b"no json", "s.json", "no JSON list"),
        (b"[]", "s.json", "no JSON list"),
        (b"", "s.json", "is empty: take it again"),
        (b"", "s.json.gz", "is empty: take it again"),
        (text([]), "s.json", "no node in it"),
        (text([*controllers(1)]), "s.json", "no node in it"),
    ],
)
def test_bad_snapshot_is_one_clear_line(bench: Bench, content: bytes | None, name: str, said: str) -> None:
    """A snapshot that is missing, damaged or none at all is named with what is wrong."""
    path = bench.directory / name
    if content is not None:
        path.write_bytes(content)
    message = bench.fails(snapshot=path)
    assert message.startswith(f"error: --snapshot {path}: ")
    assert said in message
    assert len(message.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("machine_type,vcpus\nm2,2\n", "memory_gib"),
        ("machine_type,vcpus,memory_gib,usd_per_hour\nm2,two,8,0.09\n", "vcpus"),
        ("", ""),
    ],
)
def test_bad_catalog_is_one_clear_line(bench: Bench, content: str, said: str) -> None:
    """A catalog that cannot be used is named with the line and the column."""
    bench.catalog.write_text(content)
    message = bench.fails()
    assert message.startswith(f"error: --catalog {bench.catalog}: ")
    assert said in message
    assert len(message.strip().splitlines()) == 1


def test_missing_catalog_is_one_clear_line(bench: Bench) -> None:
    """A catalog that does not exist is named with its option."""
    bench.catalog.unlink()
    assert bench.fails() == f"error: --catalog {bench.catalog}: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--objective", "speed"),
        ("--objective", "cost:50"),
        ("--max-utilization", "0"),
        ("--max-utilization", "101"),
        ("--max-utilization", "x"),
        ("--work", "0"),
        ("--time-limit", "0"),
        ("--time-limit", "-3"),
        ("--time-limit", "nan"),
        ("--time-limit", "inf"),
        ("--move-price", "-0.1"),
        ("--move-price", "nan"),
        ("--objective", "energy", "--move-price", "inf"),
        ("--max-moves", "-1"),
        ("--headroom", "-1"),
        ("--max-moves", "few"),
        ("--seed", "-1"),
        ("--seed", "99999999999"),
        ("--threads", "0"),
        ("--threads", "1000"),
        ("-o", "xml"),
        ("--unknown",),
    ],
)
def test_wrong_arguments_exit_2(bench: Bench, arguments: tuple[str, ...]) -> None:
    """What the command line cannot mean is refused before anything is read."""
    assert bench.fails(*arguments, code=2)


NUMBERS = ("--move-price", "--max-moves", "--headroom", "--seed", "--threads", "--time-limit")
SHARES = ("--spot-max-share", "--spot-max-share-per-pool")


@pytest.mark.parametrize("option", [*NUMBERS, *SHARES])
def test_number_out_of_range_is_named_in_one_line(bench: Bench, option: str) -> None:
    """The line names the option as it was typed, and the range."""
    said = bench.fails(option, "-7", code=2)
    assert option in said
    assert "-7" in said
    assert len(said.strip().splitlines()) == 1


def test_a_file_with_a_byte_order_mark_is_read_and_another_encoding_named(bench: Bench) -> None:
    """What PowerShell writes: a mark before UTF-8 is no part of the text; UTF-16 is told with the way out."""
    bench.snapshot.write_bytes(b"\xef\xbb\xbf" + text(spread()))
    assert bench.run().exit_code == 0
    bench.snapshot.write_bytes(text(spread()).decode().encode("utf-16"))
    assert "is in UTF-16: write it again in UTF-8" in bench.fails()


def test_nodes_that_are_not_ready_are_told(bench: Bench) -> None:
    """Their pods are taken to run: whoever knows better has to be reminded of it."""
    silent = node("n7")
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    bench.snapshot.write_bytes(text([*spread(), silent]))
    assert "1 node not Ready: n7;" in bench.run().stdout


def test_scope_leaves_other_nodes_alone(bench: Bench) -> None:
    """Of three nodes two are Kinema's, each named by a scope of its own: one goes, the third stays as it is."""
    ours = [word for name in ("n0", "n1") for word in ("--scope", f"kubernetes.io/hostname={name}")]
    found = json.loads(bench.run(*ours, "-o", "json").stdout)
    actions = {one["name"]: one["action"] for one in found["nodes"]}
    assert sorted(actions) == ["n0", "n1", "n2"]
    assert sorted([actions["n0"], actions["n1"]]) == ["delete", "keep"]
    assert actions["n2"] == "keep"
    assert [one["pod"] for one in found["placements"] if one["to"] == "n2"] == ["shop/web-2"]


@pytest.mark.parametrize("words", ["n0", "pool=a,n0", "=a"])
def test_scope_that_is_no_labels_is_refused(bench: Bench, words: str) -> None:
    """The error repeats it and says what to write."""
    assert f"--scope '{words}': write labels of nodes as KEY=VALUE,KEY=VALUE" in bench.fails("--scope", words, code=2)
