"""Logs: one JSON object per line on stdout, or readable lines on a terminal."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Literal

import structlog
from structlog.types import EventDict, Processor, WrappedLogger


def configure(service: str, cluster: str, format_: Literal["auto", "json", "console"] = "auto") -> None:
    """Set up structlog, and the standard library's logging (warnings and above) with the same look."""
    console = format_ == "console" or (format_ == "auto" and sys.stdout.isatty())
    release = version("kinema-core")

    def who(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
        return {"service": service, "cluster": cluster, "version": release, **line}

    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    end: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())]
        if console
        else [who, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=True)]
    )
    structlog.configure(
        processors=[*common, *end],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[_without_meta, *end], foreign_pre_chain=common)
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)


def _without_meta(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    return structlog.stdlib.ProcessorFormatter.remove_processors_meta(_, __, line)
