"""Choosing the provider by a setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinema_cli.inputs import UsageError
from kinema_cli.local.settings import provider_setting
from kinema_core.runtime.settings import SettingsError, load
from kinema_rescheduler.settings import KwokSettings, Settings, SimSettings, StaticSettings


def written(directory: Path, **fields: Any) -> Path:
    """A settings file."""
    path = directory / "settings.json"
    path.write_text(json.dumps({"runtime": {"cluster": "c"}, **fields}), encoding="utf-8")
    return path


def test_the_kind_chooses_the_provider(tmp_path: Path) -> None:
    """Each kind has settings of its own."""
    sim = load(Settings, written(tmp_path, provider={"kind": "sim", "url": "http://sim:1"})).provider
    assert sim == SimSettings(url="http://sim:1")
    kwok = load(Settings, written(tmp_path, provider={"kind": "kwok", "catalog": "c.csv", "max_nodes": 9})).provider
    assert kwok == KwokSettings(catalog="c.csv", max_nodes=9)
    static = load(Settings, written(tmp_path, provider={"kind": "static", "inventory": "i.json"})).provider
    assert static == StaticSettings(inventory="i.json")


def test_a_provider_is_never_a_default(tmp_path: Path) -> None:
    """A forgotten provider is refused: no service may order nodes from a cloud that nobody named."""
    kinds = "sim, kwok, delegate, gke, karpenter, cluster-api, static"
    with pytest.raises(SettingsError, match=f"missing required field `provider`; name its kind: {kinds}$"):
        load(Settings, written(tmp_path))


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        ({"kind": "sim"}, "missing required field `url`"),
        ({"catalog": "c"}, "field `kind` - at `$.provider`; name its kind: sim, kwok, delegate, gke, karpenter,"),
        ({"kind": "cloud"}, "$.provider.kind`; there are sim, kwok, delegate, gke, karpenter, cluster-api, static"),
        ({"kind": "kwok"}, "missing required field `catalog`"),
        ({"kind": "delegate", "catalog": "c", "url": "u"}, "unknown field `url`"),
        (
            {"kind": "cluster-api", "namespace": "n", "cluster": "c", "kubeconfg": "k"},
            "`kubeconfg` - at `$.provider`; there are kind, namespace, cluster, kubeconfig, catalog",
        ),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, provider: dict[str, str], told: str) -> None:
    """The error names the path of what is wrong."""
    with pytest.raises(SettingsError) as caught:
        load(Settings, written(tmp_path, provider=provider))
    assert told in str(caught.value)


def test_up_takes_a_provider_in_one_word(tmp_path: Path) -> None:
    """`KIND=WHERE` becomes the setting; anything else is told in words."""
    prices = tmp_path / "prices.csv"
    prices.touch()
    assert provider_setting("sim=http://127.0.0.1:1") == {"kind": "sim", "url": "http://127.0.0.1:1"}
    assert provider_setting(f"kwok={prices}") == {"kind": "kwok", "catalog": str(prices)}
    for wrong in ("kwok", "gke=x", "gke=shop//prod", "cluster-api=fleet/", "sim=ftp://x"):
        with pytest.raises(UsageError, match="--provider"):
            provider_setting(wrong)
