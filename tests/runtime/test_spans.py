"""Spans: one for each event that is handled and one for each attempt at a step, in the trace of their iteration."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.rescheduler.harness import World
from tests.rescheduler.plans_in_memory import small_plan
from tests.runtime.serving import Predictor, forecasts, served
from tests.support.bus_events import iteration
from tests.support.waiting import until

from kinema_core.runtime.health import Health
from kinema_core.runtime.spans import Spans, spans_to
from kinema_sim.memory_bus import MemoryBus


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Keeps the spans of every service that is made from now on."""
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    begin = Health.__init__

    def with_spans(health: Health, service: str, cluster: str) -> None:
        begin(health, service, cluster)
        health.spans = Spans(provider, cluster)

    monkeypatch.setattr(Health, "__init__", with_spans)
    return kept


def trace_of(span: ReadableSpan) -> str:
    """The trace that a span belongs to, as a traceparent writes it."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_each_event_that_is_handled_is_a_span(exporter: InMemorySpanExporter) -> None:
    """It says which event, of which iteration, how often it was tried and what came of it."""
    bus = MemoryBus()
    for n in (1, 2):
        await bus.publish(iteration(n))
    async with served(Predictor(), bus):
        await until(lambda: len(forecasts(bus)) == 2)
    spans = exporter.get_finished_spans()
    assert [one.name for one in spans] == ["predictor iteration-started"] * 2
    first = dict(spans[0].attributes or {})
    assert (first["kinema.event"], first["kinema.outcome"], first["kinema.attempt"]) == ("it-1", "answered", 1)
    given = [event.traceparent.split("-") for event in bus.events("LOG")[:2]]
    assert [trace_of(one) for one in spans] == [parts[1] for parts in given]
    assert [f"{one.parent.span_id:016x}" for one in spans if one.parent] == [parts[2] for parts in given]


async def test_each_step_is_a_span(exporter: InMemorySpanExporter) -> None:
    """Those of a plan are in one trace, that of the event by which it was accepted."""
    world = World(*small_plan())
    await world.completes()
    spans = exporter.get_finished_spans()
    assert len(spans) == len(world.intents())
    assert len({trace_of(one) for one in spans}) == 1
    steps = [str((one.attributes or {})["kinema.step"]) for one in spans]
    assert sorted(steps) == sorted(intent.step.id for intent in world.intents())
    assert all((one.attributes or {})["kinema.outcome"] == "done" for one in spans)


def test_an_address_is_all_that_is_needed() -> None:
    """Spans are then sent there when the service ends, at the latest; no collector has to be there at the start."""
    spans = spans_to("http://127.0.0.1:9/v1/traces", service="decider", cluster="shop")
    assert spans._provider is not None
    assert spans._provider.resource.attributes["service.name"] == "kinema-decider"
    spans.close()


def test_by_default_there_are_none() -> None:
    """Without an address nothing is made, and the SDK is not needed."""
    spans = spans_to("", service="decider", cluster="shop")
    with spans.of("decider plan-proposed", "", {"event": "e-1"}) as span:
        span["outcome"] = "answered"
    spans.close()
    assert Health("decider", "shop").spans._provider is None
