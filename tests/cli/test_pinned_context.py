"""`kinema up` stays with the cluster on which it began, whatever becomes of the kubeconfig."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinema_cli.pipeline import LocalPipeline, PipelineOptions
from kinema_core.runtime.settings import load
from kinema_core.runtime.yaml_files import current_context
from kinema_observer.settings import Settings as ObserverSettings
from kinema_rescheduler.settings import Settings as ReschedulerSettings


def test_services_are_bound_to_the_context_of_the_start(tmp_path: Path) -> None:
    """A service that is started again after `kubectl config use-context` must not act on that other cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("current-context: staging\ncontexts: [{name: staging}, {name: production}]\n")
    provider = {"kind": "sim", "url": "http://127.0.0.1:9"}
    options = PipelineOptions(directory=tmp_path, cluster="c1", kubeconfig=kubeconfig, provider=provider)
    pipeline = LocalPipeline(options)
    for service in ("observer", "rescheduler"):
        pipeline._write_settings(service)
    assert load(ObserverSettings, tmp_path / "settings/observer.json").context == "staging"
    assert load(ReschedulerSettings, tmp_path / "settings/rescheduler.json").context == "staging"


@pytest.mark.parametrize("content", [None, "{", "- 1", "contexts: []", "current-context:"])
def test_a_file_without_a_current_context_pins_nothing(tmp_path: Path, content: str | None) -> None:
    """What is wrong with it is told by whoever connects."""
    kubeconfig = tmp_path / "kubeconfig"
    if content is not None:
        kubeconfig.write_text(content)
    assert current_context(kubeconfig) == ""
