"""Speed of a replay: the demo's recording, decided again from beginning to end in one process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from kinema_cli.replay.command import STAGES, replay_all
from kinema_cli.replay.recording import read

RECORDING: Final = Path("out/demo/recording.jsonl.zst")


def measure() -> dict[str, object]:
    """Seconds of cluster time recorded, seconds that the replay takes, and their ratio. Needs `make demo` first."""
    if not RECORDING.exists():
        raise SystemExit(f"{RECORDING} does not exist: run `make demo` first")
    began = time.perf_counter()
    recording = read(RECORDING)
    tally = asyncio.run(replay_all(recording, STAGES))
    seconds = time.perf_counter() - began
    return {
        "recorded_cluster_seconds": round(recording.seconds, 1),
        "log_events": len(recording.log),
        "state_events": len(recording.state),
        "decisions": sum(tally.decided.values()),
        "different": len(tally.differences),
        "replay_seconds": round(seconds, 3),
        "times_faster_than_recorded": round(recording.seconds / seconds, 1),
    }
