"""Write `docs/metrics.md` from the table of metrics, or check that it is up to date.

python tools/metrics_reference.py            write it
python tools/metrics_reference.py --check    exit 1 when it is not what would be written
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# As a script this file finds its neighbors, in a test it is part of a package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.event_catalog import write_or_check

from kinema_core.runtime.metric_table import COMMON, METRICS

DOC: Final = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
_INTRO: Final = f"""\
# Metrics

<!-- Written by tools/metrics_reference.py from kinema_core.runtime.metric_table: change that, then run it. -->

Each service answers `/metrics` on its health port in the text format of Prometheus. Beside its own labels each
metric has {" and ".join(f"`{name}`" for name in COMMON)}. Labels take few values: kinds, rules, strategies, outcomes
and reasons, never names of objects. The chart `kinema-monitoring` has dashboards and [alerts](alerts.md) of them.

| metric | kind | labels | of | meaning |
|---|---|---|---|---|
"""


def document() -> str:
    """Return the page."""
    rows = []
    for name, one in METRICS.items():
        labels = ", ".join(f"`{label}`" for label in one.labels)
        services = "all" if len(one.of) == 5 else ", ".join(one.of)
        rows.append(f"| `{name}` | {one.kind} | {labels} | {services} | {one.text} |\n")
    return _INTRO + "".join(rows)


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    return write_or_check(DOC, document(), arguments, "metrics_reference.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
