"""Draw the picture of the README from a demo's recording: `python tools/docs_images.py out/demo/recording.jsonl.zst`.

Chromium or Chrome takes the picture of the report of the first accepted plan.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kinema_cli.replay.recording import read
from kinema_cli.report.build import build_report
from kinema_cli.report.from_plan import plan_report
from kinema_cli.report.from_run import cluster_at, offers_in
from kinema_core.events import Plan, PlanAccepted

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "plan.png"
SIZE = "1240,1330"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def write_report(recording: Path, out: Path) -> None:
    """Write the report of the first accepted plan of a recording."""
    found = read(recording)
    log = [item.event for item in found.log]
    accepted = next(event.body.plan for event in log if isinstance(event.body, PlanAccepted))
    plan = next(event.body for event in log if event.id == accepted and isinstance(event.body, Plan))
    cluster = cluster_at([item.event for item in found.state], plan.base_version)
    title, subtitle = "Kinema plan", "simulated cluster after a traffic peak"
    build_report(plan_report(plan, cluster, offers_in(log), title=title, subtitle=subtitle), out)


def main(recording: Path) -> int:
    """Write the picture; returns 1 without a browser."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name)) is not None), None)
    if browser is None:
        sys.stderr.write(f"error: none of {', '.join(BROWSERS)} is installed\n")
        return 1
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.html"
        write_report(recording, report)
        quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
        options = (*quiet, f"--user-data-dir={directory}/browser", f"--window-size={SIZE}", f"--screenshot={PICTURE}")
        subprocess.run([browser, *options, report.as_uri()], check=True, capture_output=True)  # noqa: S603 - fixed options
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
