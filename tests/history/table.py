"""Plans of several runs by feature: `python -m tests.history.table out/random-plans/foreign-real-*.jsonl`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.history.verdict import Verdict, by_feature


def main() -> int:
    """Print the table; 1 if anything was wrong with any plan."""
    parser = argparse.ArgumentParser(prog="python -m tests.history.table", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="lines that `python -m tests.history` has written")
    verdicts = [one for file in parser.parse_args().files for one in read(file)]
    print("\n".join(table(verdicts)))
    return 1 if any(one.wrong for one in verdicts) else 0


def read(file: Path) -> list[Verdict]:
    """Return the plans of a file, without their histories."""
    return [Verdict.of_line(line) for line in file.read_text().splitlines()]


def table(verdicts: list[Verdict]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    heads = ("feature", "plans", "pods led", "landed", "median time", "saving reached", "executions a plan")
    yield _row((*heads, "aborted", "ended dearer", "a quarter by a third", "with flaws"))
    yield _row("---" for _ in range(11))
    for name, told in by_feature(verdicts).items():
        led = sum(one.steered for one in verdicts if name == "all" or name in one.features)
        yield _row(
            (
                name,
                f"{told['plans']}",
                f"{led}",
                f"{told['landed']:.1%}",
                f"{told['seconds']:.0f} s",
                f"{told['saving_reached']:.0%}",
                f"{told['executions']:.2f}",
                f"{told['aborted']}",
                f"{told['dearer']}",
                f"{told['quarter_by_a_third']:.0%}",
                f"{told['flaws']}",
            )
        )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    raise SystemExit(main())
