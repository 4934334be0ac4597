"""`kinema plan` on a file that lacks kinds which others in it name: told before the plan, and in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.bench import Bench, meta, pod, spread, text

NAMED = "to which others in it refer; pods that depend on one are not moved"


def claim(**spec: Any) -> dict[str, Any]:
    """The claim `data`."""
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("data", "shop"), "spec": spec}


@pytest.mark.parametrize(
    ("there", "absent", "reason"),
    [
        ([], "persistentvolumeclaims", "its claim shop/data is not in the cluster's state"),
        ([claim(volumeName="pv")], "persistentvolumes", "volume pv of claim shop/data is not in the cluster's state"),
        (
            [claim(storageClassName="std")],
            "storageclasses",
            "claim shop/data has no volume yet, and its storage class std is not in the cluster's state",
        ),
    ],
)
def test_kind_that_a_claim_leads_to_is_missed_by_name(
    there: list[dict[str, Any]], absent: str, reason: str, tmp_path: Path
) -> None:
    """Where nothing names them, a file may well be without volumes, claims and storage classes."""
    bench = Bench(tmp_path)
    waits = pod("waits", None)
    waits["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    bench.snapshot.write_bytes(text([*spread(), waits, *there]))
    result = bench.run("-o", "json")
    assert f"the snapshot contains no {absent}, {NAMED}\n" in result.stderr
    (unplaced,) = json.loads(result.stdout)["unplaced"]
    assert unplaced["reason"] == reason
    bench.snapshot.write_bytes(text(spread()))
    assert NAMED not in bench.run().output
