"""`kinema prices`, and `kinema plan` without a catalog."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from tests.cli.bench import controllers, node, pod, text
from typer.testing import CliRunner

from kinema_cli.main import app
from kinema_core.model.catalog_file import parse_catalog

PLACES = {
    "gce": ("e2-standard-8", "europe-west3", "europe-west3-a"),
    "ec2": ("m5.2xlarge", "eu-central-1", "eu-central-1a"),
    "azure": ("Standard_D8s_v3", "westeurope", "westeurope-1"),
}


def snapshot(folder: Path, machine_type: str, region: str, zone: str, **labels: str) -> Path:
    """Three nodes of a type with a pod each."""
    nodes = [node(f"n{index}") for index in range(3)]
    for one in nodes:
        one["metadata"]["labels"] = {
            "node.kubernetes.io/instance-type": machine_type,
            "topology.kubernetes.io/region": region,
            "topology.kubernetes.io/zone": zone,
            **labels,
        }
    path = folder / "snapshot.json"
    path.write_bytes(text([*nodes, *controllers(3), *(pod(f"web-{index}", f"n{index}") for index in range(3))]))
    return path


def run(*arguments: str) -> Any:
    """Run the command."""
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("cloud", PLACES)
def test_plan_needs_no_price_file(cloud: str, tmp_path: Path) -> None:
    """On nodes of GCE, EC2 and Azure prices are found; source, region, date and age are shown."""
    found = run("plan", "--snapshot", str(snapshot(tmp_path, *PLACES[cloud])), "-o", "json", "--work", "50")
    assert found.exit_code == 0, found.output
    value = json.loads(found.stdout)
    assert value["cost"]["after"] < value["cost"]["before"]
    assert value["metadata"]["prices"].startswith(f"{cloud} {PLACES[cloud][1]} of 20")
    remedy = "give newer ones in --catalog" if cloud == "ec2" else f"kinema prices --from {cloud}"
    assert any("old" in warning and remedy in warning for warning in value["warnings"])


def test_old_prices_of_a_catalog_are_warned_of(tmp_path: Path) -> None:
    """By the date in its remarks, as those of the tables."""
    catalog = tmp_path / "own.csv"
    catalog.write_text("# prices of 2020-01-01\nmachine_type,vcpus,memory_gib,usd_per_hour\ne2-standard-8,8,32,0.3\n")
    found = run("plan", "--snapshot", str(snapshot(tmp_path, *PLACES["gce"])), "--catalog", str(catalog), "--work", "1")
    assert found.exit_code == 0, found.output
    assert "warning: prices in own.csv are of 2020-01-01, " in found.stdout


def test_unknown_types_are_named(tmp_path: Path) -> None:
    """Of a cluster with a type that no table has, the type and what to do are named."""
    found = run("plan", "--snapshot", str(snapshot(tmp_path, "x9-mega-4", "europe-west3", "europe-west3-a")))
    assert found.exit_code == 1
    assert "x9-mega-4" in found.stderr
    assert "--catalog" in found.stderr


def test_spot_nodes_need_a_price_or_an_estimate(tmp_path: Path) -> None:
    """No table has spot prices: such nodes are named, and a line of discounts prices them."""
    path = snapshot(tmp_path, *PLACES["gce"], **{"cloud.google.com/gke-spot": "true"})
    refused = run("plan", "--snapshot", str(path))
    assert refused.exit_code == 1
    assert "missing price: e2-standard-8/europe-west3-a/spot" in refused.stderr
    discounts = tmp_path / "spot.csv"
    discounts.write_text("machine_type,capacity_type,percent_off\n*,spot,70\n")
    found = run("plan", "--snapshot", str(path), "--discounts", str(discounts), "-o", "json", "--work", "50")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["cost"]["before"] == pytest.approx(3 * 0.3453 * 0.3, rel=1e-3)


def test_offer_is_for_tables_only(tmp_path: Path) -> None:
    """A catalog lists what is on offer: both are refused as wrong arguments."""
    path = snapshot(tmp_path, *PLACES["gce"])
    assert run("plan", "--snapshot", str(path), "--catalog", "x.csv", "--offer", "n2-*").exit_code == 2


def test_what_options_name_and_nothing_has_is_warned_of(tmp_path: Path) -> None:
    """A machine type that no table has, with the ones spelled like it; discounts without an offer; an empty scope."""
    discounts = tmp_path / "contract.csv"
    discounts.write_text("machine_type,percent_off\nx9-*,10\n")
    options = ["--offer", "n2-standrd-4,c2-*", "--discounts", str(discounts), "--scope", "team=red", "--work", "1"]
    found = run("plan", "--snapshot", str(snapshot(tmp_path, *PLACES["gce"])), *options)
    assert found.exit_code == 0, found.output
    named = [line for line in found.stdout.splitlines() if line.startswith("warning: --")]
    assert [line.partition("; similar")[0] for line in named] == [
        "warning: --offer n2-standrd-4: no such machine type is on sale here",
        f"warning: --discounts {discounts}: there is no offer of machine type x9-* in zone * (on-demand); its line "
        "changes no price",
        "warning: --scope team=red: no node has these labels",
    ]
    assert "similar names: n2-standard-4" in named[0]


def test_tables_print_as_a_catalog(tmp_path: Path) -> None:
    """What it prints is a catalog with a date, which `kinema plan` takes and answers the same."""
    path = snapshot(tmp_path, *PLACES["ec2"])
    printed = run("prices", "--snapshot", str(path), "--offer", "c5.*")
    assert printed.exit_code == 0, printed.output
    assert {row.machine_type.partition(".")[0] for row in parse_catalog(printed.stdout)} == {"m5", "c5"}
    assert printed.stdout.startswith("# prices of 2024-05-02: ec2 eu-central-1")


# --- public price lists, served here as they answer


def sku(description: str, usage: str, nanos: int, region: str = "europe-west3") -> dict[str, Any]:
    """A SKU in the form of the Cloud Billing Catalog."""
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}
    expression = {"usageUnit": "h", "displayQuantity": 1, "tieredRates": [rate], "baseUnit": "s"}
    return {
        "name": "services/6F81-5844-456A/skus/C921-088E-792A",
        "skuId": "C921-088E-792A",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": "CPU",
            "usageType": usage,
        },
        "serviceRegions": [region],
        "pricingInfo": [{"effectiveTime": "2026-11-20T09:31:41Z", "summary": "", "pricingExpression": expression}],
        "serviceProviderName": "Google",
    }


GOOGLE: Mapping[str, Any] = {
    "": {
        "skus": [
            sku("E2 Instance Core running in Frankfurt", "OnDemand", 30_000_000),
            sku("E2 Custom Instance Core running in Frankfurt", "OnDemand", 99_000_000),
            sku("Commitment v1: E2 Cpu in Frankfurt for 1 Year", "Commit1Yr", 1),
        ],
        "nextPageToken": "second",
    },
    "second": {
        "skus": [
            sku("E2 Instance Ram running in Frankfurt", "OnDemand", 4_000_000),
            sku("Spot Preemptible E2 Instance Core running in Frankfurt", "Preemptible", 9_000_000),
            sku("Spot Preemptible E2 Instance Ram running in Frankfurt", "Preemptible", 1_000_000),
        ],
        "nextPageToken": "",
    },
}


def item(sku_name: str, price: float, product: str = "Virtual Machines DSv3 Series") -> dict[str, Any]:
    """An item in the form of the Retail Prices API."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "location": "EU West",
        "meterName": sku_name,
        "productName": product,
        "skuName": sku_name,
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": "Standard_D8s_v3",
    }


class _Lists(BaseHTTPRequestHandler):
    """Answers as both lists do."""

    def do_GET(self) -> None:
        query = {key: values[0] for key, values in parse_qs(urlparse(self.path).query).items()}
        status, value = 200, GOOGLE.get(query.get("pageToken", ""), {})
        if self.headers.get("X-Goog-Api-Key") == "wrong":
            status, value = 403, {"error": {"code": 403, "message": "Cloud Billing API has not been used in project 7"}}
        if "$filter" in query:
            next_page = f"http://127.0.0.1:{self.connection.getsockname()[1]}/?second=1"
            value = {"Items": [item("D8s v3", 0.5), item("D8s v3", 0.9, "Virtual Machines DSv3 Series Windows")]}
            value["NextPageLink"] = next_page
        if "second" in query:
            value = {"Items": [item("D8s v3 Spot", 0.1), item("D8s v3 Low Priority", 0.01)], "NextPageLink": None}
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both lists on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Lists)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("KINEMA_PRICES_URL", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("KINEMA_GCP_API_KEY", "key")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("lists")
def test_google_sells_cores_and_memory(tmp_path: Path) -> None:
    """Prices of types follow from both, over all pages, on demand and spot; commitments are no prices."""
    found = run("prices", "--from", "gce", "--snapshot", str(snapshot(tmp_path, *PLACES["gce"])))
    assert found.exit_code == 0, found.output
    rows = {(row.machine_type, row.capacity_type): row.micro_usd_per_hour for row in parse_catalog(found.stdout)}
    assert rows["e2-standard-8", "on-demand"] == 8 * 30_000 + 32 * 4_000
    assert rows["e2-standard-2", "spot"] == 2 * 9_000 + 8 * 1_000
    assert "Google Cloud Billing Catalog" in found.stdout


@pytest.mark.usefixtures("lists")
def test_azure_sells_machine_types(tmp_path: Path) -> None:
    """Linux prices on demand and spot, over all pages; no Windows, no low priority."""
    found = run("prices", "--from", "azure", "--snapshot", str(snapshot(tmp_path, *PLACES["azure"])))
    assert found.exit_code == 0, found.output
    rows = {(row.machine_type, row.capacity_type): row.micro_usd_per_hour for row in parse_catalog(found.stdout)}
    assert rows == {("Standard_D8s_v3", "on-demand"): 500_000, ("Standard_D8s_v3", "spot"): 100_000}


@pytest.mark.usefixtures("lists")
def test_refusals_of_the_list_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list's own words, and which right the key lacks; without a key the variable is named."""
    path = str(snapshot(tmp_path, *PLACES["gce"]))
    monkeypatch.setenv("KINEMA_GCP_API_KEY", "wrong")
    refused = run("prices", "--from", "gce", "--snapshot", path)
    assert refused.exit_code == 1
    assert "has not been used in project" in refused.stderr
    assert "KINEMA_GCP_API_KEY" in refused.stderr
    monkeypatch.delenv("KINEMA_GCP_API_KEY")
    assert run("prices", "--from", "gce", "--snapshot", path).exit_code == 2
