"""Measure how many seeded mutations of the deciding code the tests kill.

    uv pip install coverage                                        # no dependency of Kinema
    python tools/mutations.py --count 60 --seed 1 --out out/mutations

Run it in the root of the repository. For each group of modules one process collects the group's tests. A child runs
them all and records the lines and the time of each. Then a child for each mutant swaps the code of one function in
place and runs the tests of the changed line, shortest first, until one fails or hangs: the mutant is killed. It
survives if none does of those that fit into `--seconds`. A second run adds to the files in `--out`.

A mutant replaces one operator, constant or condition in the body of a function. Module constants, defaults and
decorators stay as they are. Tests that need services, a cluster or containers are left out.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import multiprocessing
import os
import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

GROUPS = {
    "decider": ("tests/decider", "services/decider/src/kinema_decider/logic"),
    "checker": ("tests/model", "core/src/kinema_core/model/checker"),
    "sequencing": ("tests/model", "core/src/kinema_core/model/sequencing"),
    "moves": ("tests/rescheduler", "services/rescheduler/src/kinema_rescheduler/moves"),
    "planning": ("tests/optimizer", "services/optimizer/src/kinema_optimizer/planning"),
}
"""Group: folder of its tests, folder of its modules."""
LEFT_OUT = ("pipeline", "cluster", "connected", "containers", "prometheus")
PATIENCE = 60  # seconds after which a test hangs, besides ten times the processor time that it takes
FORK = multiprocessing.get_context("fork")
PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.And, ast.Or)),
)
OPPOSITES = dict(PAIRS) | {second: first for first, second in PAIRS}
Note = Callable[[int], object]
Swaps = list[tuple[FunctionType, CodeType]]


def modules_of(group: str) -> list[Path]:
    """Return the modules of a group."""
    return sorted(Path(GROUPS[group][1]).glob("*.py"))


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for outer in tree.body:
        for node in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{outer.name}.{node.name}" if isinstance(outer, ast.ClassDef) else node.name, node


def _changes(tree: ast.Module) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield every change: its function, its node, the field to set, the value to set it to."""
    for name, function in _functions(tree):
        for node in (node for statement in function.body for node in ast.walk(statement)):
            match node:
                case ast.Compare(ops=[operator, *others]) if type(operator) in OPPOSITES:
                    yield name, node, "ops", [OPPOSITES[type(operator)](), *others]
                case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in OPPOSITES:
                    yield name, node, "op", OPPOSITES[type(operator)]()
                case ast.Constant(value=int(number)):
                    yield name, node, "value", not number if isinstance(number, bool) else number + 1
                case ast.If(test=test) | ast.IfExp(test=test):
                    yield name, node, "test", ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
                case _:
                    pass


def mutants_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every mutant of one module."""
    for number, (function, node, field, value) in enumerate(_changes(ast.parse(path.read_text()))):
        first = [each[0] if field == "ops" else each for each in (getattr(node, field), value)]
        change = " -> ".join(str(each) if field == "value" else type(each).__name__ for each in first)
        line = getattr(node, "test", node).lineno
        yield {"path": str(path), "function": function, "line": line, "number": number, "change": change}


def swaps(mutant: dict[str, Any], functions: list[FunctionType]) -> Swaps:
    """Return the functions to change, wherever they were imported or wrapped, and their new code."""
    tree, path = ast.parse(Path(mutant["path"]).read_text()), str(Path(mutant["path"]).resolve())
    _, node, field, value = list(_changes(tree))[mutant["number"]]
    setattr(node, field, value)
    outer = [each for each in compile(tree, path, "exec").co_consts if isinstance(each, CodeType)]
    inner = [each for code in outer for each in (code, *code.co_consts) if isinstance(each, CodeType)]
    codes = {(code.co_qualname, code.co_firstlineno): code for code in inner if code.co_qualname == mutant["function"]}
    place = (path, mutant["function"])
    found = [each for each in functions if (each.__code__.co_filename, each.__code__.co_qualname) == place]
    if not found:
        raise LookupError(f"{mutant['path']}: no function {mutant['function']} is loaded")
    return [(each, codes[each.__code__.co_qualname, each.__code__.co_firstlineno]) for each in found]


def last_note(work: Callable[[Note], None], patience: float) -> int:
    """Do work in a child and return the last number that it noted; end it where it notes nothing for too long."""

    def alone() -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        try:
            work(writing.send)
        finally:
            writing.send(None)

    reading, writing = FORK.Pipe(duplex=False)
    child = FORK.Process(target=alone)
    child.start()
    last = 0
    while reading.poll(patience) and (noted := reading.recv()) is not None:
        last = noted
    with suppress(ProcessLookupError):
        os.killpg(child.pid or 0, signal.SIGKILL)
    child.join()
    return last


class Judge:
    """Plugin that takes pytest's place once the tests are collected, and judges the mutants of one group."""

    def __init__(self, group: str, options: argparse.Namespace) -> None:
        self.group, self.options = group, options
        self.failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let property tests draw the same examples in each child, and not look for smaller ones."""
        from hypothesis import Phase, settings  # noqa: PLC0415 - pytest warns of plugins imported before it starts

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutations", settings.default, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutations")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record that a test failed."""
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the mutants in the order drawn."""
        self.items = {item.nodeid: item for item in session.items if not any(map(item.get_closest_marker, LEFT_OUT))}
        self.functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        gc.freeze()  # a child then copies less
        covered = self.options.out / f"{GROUPS[self.group][0].replace('/', '-')}.json"
        if not covered.exists():
            last_note(lambda note: self._cover(covered, note), 3600)
        known = json.loads(covered.read_text())
        self.seconds, self.lines = known["seconds"], known["lines"]
        pool = [mutant for path in modules_of(self.group) for mutant in mutants_of(path)]
        random.Random(self.options.seed).shuffle(pool)  # noqa: S311 - a sample, no secret
        kept = self.options.out / f"{self.group}.json"
        done = json.loads(kept.read_text()) if kept.exists() else []
        for mutant in pool[len(done) : self.options.count]:
            tests = self._tests_of(mutant)
            killer = self._killer(tests, swaps(mutant, self.functions))
            done.append({**mutant, "tests": len(tests), "killer": killer})
            kept.write_text(json.dumps(done, indent=1) + "\n")
        killed = sum(bool(one["killer"]) for one in done)
        print(f"{self.group}: {killed} of {len(done)} killed ({len(pool)} possible)", flush=True)  # noqa: T201
        return True

    def _tests_of(self, mutant: dict[str, Any]) -> list[str]:
        names = self.lines.get(mutant["path"], {}).get(str(mutant["line"]), ())
        names = [name for name in names if name in self.seconds]
        names.sort(key=lambda name: (self.seconds[name], name))
        sums = accumulate(self.seconds[name] for name in names)
        return [name for name, total in zip(names, sums, strict=True) if total <= self.options.seconds]

    def _killer(self, tests: list[str], changed: Swaps) -> str | None:
        """Return the first test that fails with the change and passes alone without it."""
        while (killer := self._first_failing(tests, changed)) is not None and not self._is_sound(killer):
            tests = [name for name in tests if name != killer]
        return killer

    @cache  # noqa: B019 - one judge a process
    def _is_sound(self, test: str) -> bool:
        return self._first_failing([test], []) is None

    def _first_failing(self, tests: list[str], changed: Swaps) -> str | None:
        def work(note: Note) -> None:
            for function, code in changed:
                function.__code__ = code
            for number, name in enumerate(tests):
                note(number)
                if not self._passes(name):
                    return
            note(len(tests))

        last = last_note(work, PATIENCE + 10 * max((self.seconds[name] for name in tests), default=0))
        return tests[last] if last < len(tests) else None

    def _passes(self, name: str) -> bool:
        self.failed, item = False, self.items[name]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed

    def _cover(self, out: Path, note: Note) -> None:
        """Run every test; write the processor time and the lines of those that pass."""
        groups = [group for group, (tests, _) in GROUPS.items() if tests == GROUPS[self.group][0]]
        include = [str(path.resolve()) for group in groups for path in modules_of(group)]
        coverage = importlib.import_module("coverage").Coverage(data_file=None, config_file=False, include=include)
        coverage.start()
        seconds: dict[str, float] = {}
        for number, name in enumerate(self.items):
            note(number)
            coverage.switch_context(name)
            started = sum(os.times()[:4])
            if self._passes(name):
                seconds[name] = round(sum(os.times()[:4]) - started, 3)
        coverage.stop()
        data = coverage.get_data()
        lines = {os.path.relpath(path): data.contexts_by_lineno(path) for path in data.measured_files()}
        out.write_text(json.dumps({"seconds": seconds, "lines": lines}) + "\n")


def main() -> None:
    """Judge each group in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="mutants of each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="most processor time of the tests of one mutant")
    parser.add_argument("--group", action="append", choices=list(GROUPS))
    parser.add_argument("--out", type=Path, default=Path("out/mutations"), help="folder of the results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for group in options.group or GROUPS:
        arguments = [GROUPS[group][0], "-qq", "-s", "-p", "no:cacheprovider"]
        child = FORK.Process(target=pytest.main, args=(arguments, [Judge(group, options)]))
        child.start()
        child.join()


if __name__ == "__main__":
    main()
