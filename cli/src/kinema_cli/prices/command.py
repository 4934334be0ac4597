"""`kinema prices`: a catalog for the cluster, from the tables that ship with Kinema or a cloud's public price list."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from urllib.parse import urlencode

import typer

from kinema_cli.inputs import InputError, PriceChoice, Prices, UsageError, fail, prices_of, snapshot_of
from kinema_cli.options import Context, Discounts, Kubeconfig, MoreOffers, SnapshotFile
from kinema_cli.output import counted, print_note, print_warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinema_cli.prices import billing, retail
    from kinema_cli.snapshot.file import Snapshot
    from kinema_core.model.price_table import PriceTable

T = TypeVar("T")

KEY: Final = "KINEMA_GCP_API_KEY"
"""Environment variable with an API key of Google Cloud that may use the Cloud Billing API."""
URL: Final = "KINEMA_PRICES_URL"
"""Environment variable with another address of the price list, such as a mirror's."""
_SECONDS: Final = 60.0
_ABOUT: Final = {
    400: f"is the API key in {KEY} right?",
    403: f"allow the API key in {KEY} to use the Cloud Billing API",
    429: "too many requests: wait a minute",
}
"""What to do about a status."""


class Source(StrEnum):
    """Price list."""

    TABLES = "tables"
    GCE = "gce"
    AZURE = "azure"


def prices(
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            metavar="NAME",
            help=f"tables: prices that ship with Kinema. gce: Google's Cloud Billing Catalog, API key in {KEY}. "
            "azure: Azure's Retail Prices API.",
        ),
    ] = Source.TABLES,
    snapshot: SnapshotFile = None,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    discounts: Discounts = None,
    offer: MoreOffers = "",
) -> None:
    """Print a catalog of the machine types that the cluster's nodes are of, and of others of their families.

    Read-only. Complete it by hand where a type is missing, and give it to --catalog or to the rescheduler's provider.
    """
    try:
        found = snapshot_of(snapshot, context, kubeconfig)
        choice = PriceChoice(discounts=discounts, families=offer)
        shown = prices_of(choice, found, _tables(source, found))
    except (UsageError, InputError) as error:
        raise typer.Exit(fail(error)) from error
    print_warning(*shown.warnings)
    _print(shown)


def _print(shown: Prices) -> None:
    from kinema_core.model.catalog_file import catalog_text

    sys.stdout.write(catalog_text(shown.rows, shown.priced, shown.said))
    print_note(f"{counted(len(shown.rows), 'offer')}; prices: {shown.said}")


def _tables(source: Source, snapshot: Snapshot) -> tuple[PriceTable, ...]:
    """Return the tables of prices; asks the price list for them."""
    from kinema_core.prices import price_tables
    from kinema_core.runtime.clock import SystemClock

    if source is Source.TABLES:
        return price_tables()
    sizes = next(table for table in price_tables() if table.cloud == source)
    if source is Source.GCE:
        from kinema_cli.prices.billing import billing_tables

        return billing_tables(_google_pages(), sizes, SystemClock().now())
    from kinema_cli.prices.retail import retail_tables
    from kinema_core.model.price_table import REGION

    regions = sorted({node.labels[key] for node in snapshot.cluster.nodes for key in REGION if key in node.labels})
    return retail_tables(_azure_pages(regions), sizes, SystemClock().now())


def _google_pages() -> Iterator[billing.Page]:
    from kinema_cli.prices import billing

    key = os.environ.get(KEY)
    if not key:
        raise UsageError(f"--from gce needs an API key of Google Cloud in the environment variable {KEY}")
    query = {"pageSize": "5000", "currencyCode": "USD"}
    while True:
        url = f"{os.environ.get(URL, billing.URL)}?{urlencode(query)}"
        page = _get(url, billing.page_of, {"X-Goog-Api-Key": key})
        yield page
        if not page.next_page_token:
            return
        query["pageToken"] = page.next_page_token


def _azure_pages(regions: Sequence[str]) -> Iterator[retail.Page]:
    from kinema_cli.prices import retail

    for region in regions:
        url: str | None = retail.query(os.environ.get(URL, retail.URL), region)
        while url:
            page = _get(url, retail.page_of, {})
            yield page
            url = page.next_page_link


def _get(url: str, read: Callable[[bytes], T], headers: dict[str, str]) -> T:
    """Return a page of a price list; raises InputError."""
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    import msgspec

    place = url.partition("?")[0]
    try:
        with urlopen(Request(url, headers=headers), timeout=_SECONDS) as answer:  # noqa: S310 - http(s) by our own words
            return read(answer.read())
    except HTTPError as error:
        said = error.read(500).decode(errors="replace").strip()
        raise InputError(f"{place}: status {error.code}: {said}", hint=_ABOUT.get(error.code, "")) from error
    except (URLError, TimeoutError) as error:
        raise InputError(
            f"{place}: {getattr(error, 'reason', error)}", hint="is this machine on the Internet?"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{place}: the answer cannot be read: {error}") from error
