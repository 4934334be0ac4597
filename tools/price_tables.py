"""Write the price tables that ship with Kinema: `core/src/kinema_core/prices/*.csv`.

Sources are packages of public registries, each fetched by its own client into a temporary directory: run
`python tools/price_tables.py` where pip and Go are installed. Prices are facts of the clouds' public price lists; the
tables name the package that they were read from, and its date.

- EC2: `fixinventorydata` (sizes, and prices by region) and the Go module of Karpenter's AWS provider (newer prices of
  us-east-1). Sizes of newer c, m and r families follow AWS's naming, after that rule held for every older type.
- GCE and Azure: `apache-libcloud`. GCE sells cores and memory; the sizes of its types follow from their names.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

TABLES: Final = Path(__file__).parent.parent / "core/src/kinema_core/prices"
FIX: Final = "fixinventorydata==0.2.6"
LIBCLOUD: Final = "apache-libcloud==3.9.1"
KARPENTER: Final = "github.com/aws/karpenter-provider-aws@v1.15.1"
LIBCLOUD_DATE: Final = "2020-08-30"
"""Its lists of GCE and Azure have not changed since its version 3.2.0, whose file says this date."""

EC2_REGIONS: Final = [
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
    "ca-central-1",
    "sa-east-1",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eu-central-1",
    "eu-north-1",
    "ap-south-1",
    "ap-northeast-1",
    "ap-southeast-1",
    "ap-southeast-2",
]
AZURE_REGIONS: Final = [
    "eastus",
    "eastus2",
    "centralus",
    "southcentralus",
    "westus",
    "westus2",
    "canadacentral",
    "brazilsouth",
    "northeurope",
    "westeurope",
    "uksouth",
    "francecentral",
    "germanywestcentral",
    "switzerlandnorth",
    "centralindia",
    "japaneast",
    "southeastasia",
    "australiaeast",
]

_GCE: Final[Mapping[str, tuple[str, str]]] = {
    "e2-standard": ("2 4 8 16 32", "4"),
    "e2-highmem": ("2 4 8 16", "8"),
    "e2-highcpu": ("2 4 8 16 32", "1"),
    "n1-standard": ("1 2 4 8 16 32 64 96", "3.75"),
    "n1-highmem": ("2 4 8 16 32 64 96", "6.5"),
    "n1-highcpu": ("2 4 8 16 32 64 96", "0.9"),
    "n2-standard": ("2 4 8 16 32 48 64 80 96 128", "4"),
    "n2-highmem": ("2 4 8 16 32 48 64 80 96", "8"),
    "n2-highcpu": ("2 4 8 16 32 48 64 80 96", "1"),
    "n2d-standard": ("2 4 8 16 32 48 64 80 96 128 224", "4"),
    "n2d-highmem": ("2 4 8 16 32 48 64 80 96", "8"),
    "n2d-highcpu": ("2 4 8 16 32 48 64 80 96 128 224", "1"),
    "c2-standard": ("4 8 16 30 60", "4"),
    "n4-standard": ("2 4 8 16 32 48 64 80", "4"),
    "n4-highmem": ("2 4 8 16 32 48 64 80", "8"),
    "n4-highcpu": ("2 4 8 16 32 48 64 80", "2"),
    "t2d-standard": ("1 2 4 8 16 32 48 60", "4"),
    "c2d-standard": ("2 4 8 16 32 56 112", "4"),
    "c2d-highmem": ("2 4 8 16 32 56 112", "8"),
    "c2d-highcpu": ("2 4 8 16 32 56 112", "2"),
    "c3-standard": ("4 8 22 44 88 176", "4"),
    "c3-highmem": ("4 8 22 44 88 176", "8"),
    "c3-highcpu": ("4 8 22 44 88 176", "2"),
    "c3d-standard": ("4 8 16 30 60 90 180 360", "4"),
    "c3d-highmem": ("4 8 16 30 60 90 180 360", "8"),
    "c3d-highcpu": ("4 8 16 30 60 90 180 360", "2"),
    "c4-standard": ("2 4 8 16 32 48 96 192", "3.75"),
    "c4-highmem": ("2 4 8 16 32 48 96 192", "7.75"),
    "c4-highcpu": ("2 4 8 16 32 48 96 192", "2"),
}
"""vCPUs of each type, and its GiB per vCPU. Of some families only sizes are known: `kinema prices` asks for prices."""
_GCE_SHARED: Final = {"e2-micro": (0.25, 1), "e2-small": (0.5, 2), "e2-medium": (1, 4)}
"""Shared cores show 2 vCPUs and are billed as this many, with these GiB."""

_AZURE_B: Final = {"1s": 1, "1ms": 2, "2s": 4, "2ms": 8, "4ms": 16, "8ms": 32, "12ms": 48, "16ms": 64, "20ms": 80}
_AZURE_V2: Final = {1: 3.5, 2: 7, 3: 14, 4: 28, 5: 56, 11: 14, 12: 28, 13: 56, 14: 112, 15: 140}
_AZURE_V2_CPUS: Final = {1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 11: 2, 12: 4, 13: 8, 14: 16, 15: 20}
_AZURE_PER_CPU: Final = {"D": 4, "E": 8, "F": 2}
_AZURE_RULE_ENDS: Final = 48
"""Above so many vCPUs, E types have less memory than their rule says: they are left out."""
_EC2_SIZES: Final = {"medium": 1, "large": 2, "xlarge": 4}
_EC2_GIB: Final = {"c": 2, "m": 4, "r": 8}
_KUBELET_PODS: Final = 110


class Machine(NamedTuple):
    """A machine type: its size, and its prices by region."""

    name: str
    vcpus: float
    memory_gib: float
    prices: Mapping[str, float]
    arch: str = "amd64"
    gpus: int = 0
    max_pods: int | None = None


def main() -> None:
    """Fetch the sources and write the tables."""
    with tempfile.TemporaryDirectory() as folder:
        fix = json.loads(_wheel_file(FIX, "fixinventorydata/data/instances.json", Path(folder)))["aws"]
        libcloud = json.loads(_wheel_file(LIBCLOUD, "libcloud/data/pricing.json", Path(folder)))["compute"]
    karpenter = _karpenter()
    sources = dict.fromkeys(EC2_REGIONS, f"PyPI {FIX}".replace("==", " "))
    dates = dict.fromkeys(EC2_REGIONS, "2024-05-02")
    sources["us-east-1"] = f"Go module {KARPENTER}".replace("@", " ")
    dates["us-east-1"] = karpenter[1]
    _write("ec2", _ec2(fix, karpenter[0]), dates, sources)
    for cloud, machines in (("gce", _gce(libcloud["gce_instances"])), ("azure", _azure(libcloud["azure_linux"]))):
        found = list(machines)
        regions = AZURE_REGIONS if cloud == "azure" else sorted({region for one in found for region in one.prices})
        dates = dict.fromkeys(regions, LIBCLOUD_DATE)
        _write(cloud, found, dates, dict.fromkeys(regions, f"PyPI {LIBCLOUD}".replace("==", " ")))


def _wheel_file(requirement: str, member: str, folder: Path) -> str:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), requirement]
    subprocess.run(command, check=True)  # noqa: S603 - our own words
    (wheel,) = folder.glob(f"{requirement.partition('==')[0].replace('-', '_')}-*.whl")
    return zipfile.ZipFile(wheel).read(member).decode()


def _karpenter() -> tuple[dict[str, float], str]:
    """Return the prices of us-east-1 and their date."""
    command = ["go", "mod", "download", "-json", KARPENTER]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - our own words
    archive = json.loads(done.stdout).get("Zip")  # there even where the module wants a newer Go
    if not archive:
        raise SystemExit(f"{KARPENTER} cannot be downloaded: {done.stdout}{done.stderr}")
    path = f"{KARPENTER}/pkg/providers/pricing/zz_generated.pricing_aws.go"
    text = zipfile.ZipFile(archive).read(path).decode()
    prices = {name: float(price) for name, price in re.findall(r'"([a-z0-9-]+\.[a-z0-9-]+)": ([0-9.]+)', text)}
    found = re.search(r"generated at (\d{4}-\d\d-\d\d)", text)
    return prices, found[1] if found else datetime.now(UTC).date().isoformat()  # noqa: TID251 - no clock is needed here


def _ec2(fix: Mapping[str, Any], newest: Mapping[str, float]) -> Iterator[Machine]:
    for name in sorted({*fix, *newest}):
        known = fix.get(name)
        size = _ec2_size(name) if known is None else (known["vCPU"], known["memory"])
        if size is None:
            continue
        prices = (
            {region: known["pricing"].get(region, {}).get("linux", {}).get("ondemand") for region in EC2_REGIONS}
            if (known)
            else {}
        )
        prices = {region: float(price) for region, price in prices.items() if price not in (None, "N/A")}
        prices.pop("us-east-1", None)
        if name in newest:
            prices["us-east-1"] = newest[name]
        arm = "arm64" in known["arch"] if known else re.match(r"[a-z]+\d+g", name) is not None
        vpc = (known or {}).get("vpc")
        pods = min(_KUBELET_PODS, vpc["max_enis"] * (vpc["ips_per_eni"] - 1) + 2) if vpc else None
        gpus = int(known["GPU"]) if known else 0
        if prices:
            vcpus, memory = size
            yield Machine(name, vcpus, memory, prices, "arm64" if arm else "amd64", gpus, pods)
    for name, known in fix.items():  # the rule that sizes of newer types rely on
        rule = _ec2_size(name)
        if rule is not None and rule != (known["vCPU"], known["memory"]):
            raise SystemExit(f"{name} has {known['vCPU']} vCPUs and {known['memory']} GiB, not {rule} as its name says")


def _ec2_size(name: str) -> tuple[float, float] | None:
    """Return vCPUs and GiB of a c, m or r type from generation 6 on by its name; None for others."""
    found = re.fullmatch(r"([cmr])[6-9][a-z]*(?:-flex)?\.(?:(\d*)(xlarge)|(medium|large))", name)
    if found is None:
        return None
    family, times, extra, small = found.groups()
    vcpus = int(times or 1) * _EC2_SIZES[extra] if extra else _EC2_SIZES[small]
    return vcpus, vcpus * _EC2_GIB[family]


def _gce(families: Mapping[str, Any]) -> Iterator[Machine]:
    """Cores and memory have a price each, by family and region."""
    for series, (sizes, per_cpu) in _GCE.items():
        for vcpus in map(int, sizes.split()):
            memory = vcpus * float(per_cpu)
            yield Machine(f"{series}-{vcpus}", vcpus, memory, _gce_prices(families, series, vcpus, memory))
    for name, (billed, memory) in _GCE_SHARED.items():
        yield Machine(name, 2, memory, _gce_prices(families, name, billed, memory))


def _gce_prices(families: Mapping[str, Any], series: str, vcpus: float, memory: float) -> dict[str, float]:
    family = families.get(series.partition("-")[0])
    if family is None:
        return {}
    cores, gibs = family["cpu"]["on_demand"], family["ram"]["on_demand"]
    both = sorted(region for region in cores if cores[region].get("price") and gibs.get(region, {}).get("price"))
    return {region: vcpus * cores[region]["price"] + memory * gibs[region]["price"] for region in both}


def _azure(sizes: Mapping[str, Mapping[str, float]]) -> Iterator[Machine]:
    for key, prices in sizes.items():
        machine = _azure_machine(key)
        if machine is not None:
            name, vcpus, memory = machine
            yield Machine(
                name, vcpus, memory, {region: prices[region] for region in AZURE_REGIONS if prices.get(region)}
            )


def _azure_machine(key: str) -> tuple[str, float, float] | None:
    """Return Azure's name, vCPUs and GiB of libcloud's key, such as `standardd4sv3`; None for other families."""
    if found := re.fullmatch(r"standardb(\d+)(m?s)", key):
        memory = _AZURE_B.get(found[1] + found[2])
        return (f"Standard_B{found[1]}{found[2]}", int(found[1]), memory) if memory else None
    if found := re.fullmatch(r"standardd(s?)(\d+)v2", key):
        number = int(found[2])
        name = f"Standard_D{found[1].upper()}{number}_v2"
        return (name, _AZURE_V2_CPUS[number], _AZURE_V2[number]) if number in _AZURE_V2 else None
    if found := re.fullmatch(r"standard([de])(\d+)(a?d?s?)v([34])", key) or re.fullmatch(
        r"standard(f)(\d+)(s)v(2)", key
    ):
        family, vcpus, letters, version = found[1].upper(), int(found[2]), found[3], found[4]
        if family == "E" and vcpus > _AZURE_RULE_ENDS:
            return None
        return f"Standard_{family}{vcpus}{letters}_v{version}", vcpus, vcpus * _AZURE_PER_CPU[family]
    return None


def _write(
    cloud: str, machines: Iterator[Machine] | Sequence[Machine], dates: Mapping[str, str], sources: Mapping[str, str]
) -> None:
    regions = list(dates)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["machine_type", "vcpus", "memory_gib", "arch", "gpus", "max_pods", *regions])
    blank = [""] * 5
    writer.writerow(["#priced", *blank, *dates.values()])
    writer.writerow(["#source", *blank, *sources.values()])
    count = 0
    for one in machines:
        cells = [
            f"{one.prices[region]:.6f}".rstrip("0").rstrip(".") if region in one.prices else "" for region in regions
        ]
        size = [f"{one.vcpus:g}", f"{one.memory_gib:g}", one.arch, str(one.gpus or ""), str(one.max_pods or "")]
        writer.writerow([one.name, *size, *cells])
        count += 1
    path = TABLES / f"{cloud}.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    print(f"{path.name}: {count} machine types in {len(regions)} regions, {path.stat().st_size:,} bytes")  # noqa: T201 - a tool


if __name__ == "__main__":
    main()
