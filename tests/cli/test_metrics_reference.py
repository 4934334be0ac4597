"""The page of metrics says what the services have."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from tools import metrics_reference

from kinema_core.runtime.event_metrics import EventMetrics
from kinema_core.runtime.health import Health
from kinema_core.runtime.loop import LoopMetrics
from kinema_core.runtime.metric_table import COMMON, METRICS, counter, gauge

SERVICES = ("observer", "predictor", "optimizer", "decider", "rescheduler")
_NAMES = {"namespace", "pod", "node", "workload", "name", "plan", "iteration", "id"}
"""What no label may stand for: there is no bound to how many of them there are."""


def test_the_page_is_up_to_date() -> None:
    """docs/metrics.md is what the table gives: run `python tools/metrics_reference.py` after changing it."""
    assert metrics_reference.main(["--check"]) == 0


@pytest.mark.parametrize("service", SERVICES)
def test_every_metric_of_a_service_is_in_the_table(service: str) -> None:
    """Whatever a service registers has name, labels and text of the table."""
    health = Health(service, "shop")
    LoopMetrics(health, service, "shop")
    for family in health.registry.collect():
        name = family.name if family.name in METRICS else f"{family.name}_total"
        assert METRICS[name].text == family.documentation
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels <= {*COMMON, *METRICS[name].labels}


def test_names_and_units_are_conventional() -> None:
    """Counters end in `_total`, times in `_seconds`, shares in `_ratio`; no label stands for objects."""
    for name, one in METRICS.items():
        assert (one.kind == "counter") == name.endswith("_total"), name
        assert not set(one.labels) & _NAMES, name
        assert ("age" in name or "lag" in name or "duration" in name) <= name.endswith("_seconds"), name
        assert one.kind == "histogram" or not one.buckets, name


def test_a_plan_and_its_execution_show_planned_and_realised_saving() -> None:
    """Each is a figure of one metric, so that they are drawn beside each other."""
    registry = CollectorRegistry()
    made = gauge(registry, "kinema_saving_usd_per_hour")
    assert made._labelnames == (*COMMON, "figure")
    assert counter(registry, "kinema_moves_total")._labelnames == (*COMMON, "strategy", "outcome")
    assert EventMetrics(CollectorRegistry(), "rescheduler", "shop") is not None
