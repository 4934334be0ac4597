"""Spans of OpenTelemetry: one for each event that a stage handles, and one for each attempt at a step. Off by default.

They belong to the trace that the event's `traceparent` names, so that the spans of all services over one iteration are
one trace. The extra `traces` of kinema-core brings the SDK, which is imported only where spans are made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

_FIELDS: Final = 4
"""Of a W3C traceparent: version, trace, span, flags."""


class SpansError(Exception):
    """Spans cannot be exported; the text names the setting and what to install."""


class Spans:
    """Where spans go; nowhere by default."""

    def __init__(self, provider: TracerProvider | None = None, cluster: str = "") -> None:
        """Give spans to a TracerProvider of OpenTelemetry; None: to none."""
        self._provider = provider
        self._cluster = cluster

    @contextmanager
    def of(self, name: str, traceparent: str, attributes: Mapping[str, str | int]) -> Iterator[dict[str, str | int]]:
        """Make a span of what happens within the block; what is put into the map that it gives are attributes, too."""
        if self._provider is None:
            yield {}
            return
        begun, more = time.time_ns(), dict[str, str | int]()
        try:
            yield more
        finally:
            tracer = self._provider.get_tracer("kinema")
            known = {f"kinema.{key}": value for key, value in {"cluster": self._cluster, **attributes, **more}.items()}
            span = tracer.start_span(name, _context(traceparent), start_time=begun, attributes=known)
            span.end()

    def close(self) -> None:
        """Send what has not been sent."""
        if self._provider is not None:
            self._provider.shutdown()


def spans_to(url: str, *, service: str, cluster: str) -> Spans:
    """Return spans that are sent to a collector by OTLP over HTTP; none are made where the address is empty.

    Raises:
        SpansError: the SDK is not installed.
    """
    if not url:
        return Spans()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SpansError(f"runtime.traces_url: {error}; install kinema-core[traces], or leave it empty") from error
    provider = TracerProvider(resource=Resource.create({"service.name": f"kinema-{service}"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
    return Spans(provider, cluster)


def _context(traceparent: str) -> Context | None:
    """Return the context of the span that a traceparent names; None where it names none."""
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    parts = traceparent.split("-")
    if len(parts) != _FIELDS:
        return None
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    try:
        named = trace.SpanContext(int(parts[1], 16), int(parts[2], 16), is_remote=True, trace_flags=flags)
    except ValueError:
        return None
    return trace.set_span_in_context(trace.NonRecordingSpan(named))
