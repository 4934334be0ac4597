"""Price lists of providers that have none of their own: a CSV file, read afresh at every look."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from kinema_core.model.catalog import CatalogError, CatalogRow, dated, parse_catalog
from kinema_rescheduler.adapters.provider import Catalog
from kinema_rescheduler.errors import FinalError


async def read_prices(path: str) -> Catalog:
    """The rows of a catalog file; its prices are of the date in its remarks, or else as old as the file.

    Raises:
        FinalError: `invalid`, the file cannot be used; names file, line and column.
    """
    try:
        return await asyncio.to_thread(_read, Path(path))
    except OSError as error:
        raise FinalError("invalid", f"catalog {path}: {error.strerror}") from error
    except (UnicodeDecodeError, CatalogError) as error:
        raise FinalError("invalid", f"catalog {path}: {error}") from error


def _read(path: Path) -> Catalog:
    text = path.read_text(encoding="utf-8")
    rows: tuple[CatalogRow, ...] = parse_catalog(text)
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(microsecond=0)
    return Catalog(source=path.name, priced=dated(text) or changed, rows=rows)
