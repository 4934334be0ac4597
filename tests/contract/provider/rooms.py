"""Providers with everything behind them, and the ways in which that goes wrong."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
from tests.rescheduler.sim_world import SimWorld

from kinema_core.events import Offer
from kinema_core.model.catalog import offers_from
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Provider
from kinema_rescheduler.providers.delegate import DelegateProvider
from kinema_rescheduler.providers.gke import GkeProvider
from kinema_rescheduler.providers.google import GoogleApi
from kinema_rescheduler.providers.kwok import FAKE, KwokProvider
from kinema_rescheduler.providers.sim import SimProvider
from kinema_rescheduler.providers.static.provider import StaticProvider
from kinema_rescheduler.settings import DelegateSettings, GkeSettings, KwokSettings, StaticSettings
from kinema_sim.cloud.machines import make_ready, node_object
from kinema_sim.engine.kinds import NODE

POWER: Final = Path(__file__).resolve().parents[2] / "support" / "power.sh"
ZONE: Final = "europe-west3-a"
_READY_MS: Final = 3000
_UNHEARD: Final = {"POST": 1, "DELETE": 2}
"""How many answers must get lost until somebody notices: aiohttp sends a deletion again by itself, once."""


class Room(ABC):
    """One provider beside the tiny simulated cluster."""

    def __init__(self, world: SimWorld, directory: Path) -> None:
        self.world = world
        self.directory = directory
        self.held: set[str] = set()
        """`never`: nodes stay not Ready; `less`: they have less than was promised."""
        self._opened: list[SimProvider | GoogleApi] = []

    @abstractmethod
    def provider(self, api: FencedClient) -> Provider:
        """The provider as a process that has just started has it."""

    def shipped(self, api: FencedClient) -> Provider:
        """The provider without a price list of its own, where it can do without one."""
        return self.provider(api)

    async def offer(self, provider: Provider, machine_type: str = "e2-standard-2") -> Offer:
        """What is on sale of a machine type."""
        offers = offers_from((await provider.catalog()).rows, self.world.cluster())
        return next(item for item in offers if (item.machine_type, item.zone) == (machine_type, ZONE))

    @abstractmethod
    def paid(self) -> list[str]:
        """Machines that are paid for beside those that were there at first."""

    async def sell_out(self) -> None:
        """No machine is left."""
        raise NotImplementedError

    async def leave_one(self) -> None:
        """One machine of the smaller type is left, and none of others."""
        raise NotImplementedError

    async def restock(self) -> None:
        """What was sold out can be had again."""
        raise NotImplementedError

    async def limit(self) -> None:
        """One machine more would be too many."""
        raise NotImplementedError

    async def deny(self, method: str = "POST") -> None:
        """The provider may not change anything; `method` tells orders (POST) from deletions (DELETE) over HTTP."""
        raise NotImplementedError

    async def fail_once(self, method: str = "POST") -> None:
        """The next order fails for no lasting reason."""
        raise NotImplementedError

    async def lose_reply(self, method: str = "POST") -> None:
        """The next order is carried out, but its answer gets lost."""
        raise NotImplementedError

    async def fault(self, **fields: Any) -> None:
        """Have the server misbehave."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.world.url}/sim/v1/faults", json=fields) as response,
        ):
            assert response.status < 300, await response.text()

    async def close(self) -> None:
        """Close what was opened."""
        for provider in self._opened:
            await provider.close()

    # --- kubelets of nodes that are not of the simulated cloud

    def _bring_up(self, name: str) -> None:
        """Turn a node that has registered Ready, as its kubelet would."""
        loop = self.world.sim.loop

        def change(node: dict[str, Any]) -> None:
            node["status"].setdefault("conditions", [])
            make_ready(node, loop.now)

        def ready() -> None:
            self.world.sim.store.edit(NODE, ("", name), change)

        if "less" in self.held:
            self.world.sim.store.edit(NODE, ("", name), _shrink)
        if "never" not in self.held:
            loop.after(_READY_MS, ready)


def _shrink(node: dict[str, Any]) -> None:
    """Give a node less than its offer promised."""
    node["status"]["allocatable"]["cpu"] = "100m"


class SimRoom(Room):
    """The simulated cloud."""

    def __init__(self, world: SimWorld, directory: Path) -> None:
        super().__init__(world, directory)
        world.sim.store.subscribe(lambda _: self._shrink())

    def _shrink(self) -> None:
        node = self.world.sim.store.get(NODE, "", "kinema-1")
        if "less" in self.held and node is not None and node["status"]["allocatable"]["cpu"] != "100m":
            self.world.sim.store.edit(NODE, ("", "kinema-1"), _shrink)

    def provider(self, api: FencedClient) -> Provider:
        """A process's own provider."""
        provider = SimProvider(self.world.url, timeout_seconds=2)
        self._opened.append(provider)
        if "never" in self.held:
            self.world.sim.cloud.never_ready.update({"kinema-1"})
        return provider

    def paid(self) -> list[str]:
        """Machines beside the first ones."""
        return [name for name in sorted(self.world.sim.cloud.machines) if not name.startswith("tiny-")]

    async def sell_out(self) -> None:
        """None is left."""
        for offer in self.world.sim.cloud.offers:
            await self.fault(type="stock-out", offer=offer)

    async def leave_one(self) -> None:
        """One is left."""
        cloud = self.world.sim.cloud
        cloud.available.update(dict.fromkeys(cloud.offers, 0) | {f"e2-standard-2/{ZONE}/on-demand": 1})

    async def restock(self) -> None:
        """The zones have machines again."""
        self.world.sim.cloud.sold_out.clear()

    async def limit(self) -> None:
        """One more is too many."""
        await self.fault(type="cloud-quota", vcpus=7)

    async def deny(self, method: str = "POST") -> None:
        """The right is missing."""
        await self.fault(type="cloud-permission")

    async def fail_once(self, method: str = "POST") -> None:
        """The next order fails."""
        await self.fault(type="api", method=method, path="/cloud/v1/nodes", status=503, count=1)

    async def lose_reply(self, method: str = "POST") -> None:
        """The next answer gets lost."""
        await self.fault(type="lose-reply", method=method, path="/cloud/v1/nodes", count=_UNHEARD[method])


class GkeRoom(SimRoom):
    """The fake GKE, whose machines are those of the simulated cloud."""

    template = ""
    """Node pool that new ones are like."""

    def provider(self, api: FencedClient) -> Provider:
        """A process's own provider."""
        return self._provider(api, _prices(self.directory, ""))

    def shipped(self, api: FencedClient) -> Provider:
        """It sells by the tables of prices."""
        return self._provider(api, "")

    def settings(self, catalog: str) -> GkeSettings:
        """Settings of the fake; its metadata server hands out no token."""
        return GkeSettings(
            project="shop",
            location="europe-west3",
            cluster="prod",
            template_pool=self.template,
            catalog=catalog,
            token_url="",
            container_url=f"{self.world.url}/gke/container",
            compute_url=f"{self.world.url}/gke/compute/v1",
            resource_manager_url=f"{self.world.url}/gke/crm",
        )

    def _provider(self, api: FencedClient, catalog: str) -> Provider:
        google = GoogleApi(self.world.clock, token_url="", timeout_seconds=2)
        self._opened.append(google)
        if "never" in self.held:
            self.world.sim.cloud.never_ready.update({"kinema-1"})
        return GkeProvider(api, self.settings(catalog), google)

    async def fail_once(self, method: str = "POST") -> None:
        """The next order fails."""
        await self.fault(type="api", method="POST", path=_GKE_WRITES[method], status=503, count=1)

    async def lose_reply(self, method: str = "POST") -> None:
        """The next answer gets lost."""
        await self.fault(type="lose-reply", method="POST", path=_GKE_WRITES[method], count=1)


_GKE_WRITES: Final = {"POST": "/gke/.*/nodePools", "DELETE": "/gke/.*/deleteInstances"}


def _prices(directory: Path, available: str) -> str:
    """Path of a price list of the simulated cloud's machines."""
    path = directory / "catalog.csv"
    rows = [
        "machine_type,vcpus,memory_gib,usd_per_hour,zone,available",
        *(f"e2-standard-2,2,8,0.09,europe-west3-{zone},{available}" for zone in "abc"),
        f"e2-standard-4,4,16,0.17,{ZONE},{available}",
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


class _FileRoom(Room):
    """A provider with a price list."""

    available = ""

    def catalog(self) -> str:
        """Path of the price list, as it is now."""
        return _prices(self.directory, self.available)


class KwokRoom(_FileRoom):
    """KWOK's nodes; a test's own hand turns them Ready."""

    def __init__(self, world: SimWorld, directory: Path) -> None:
        super().__init__(world, directory)
        self.most: int | None = None
        self._seen: set[str] = set()
        world.sim.store.subscribe(lambda _: self._look())

    def provider(self, api: FencedClient) -> Provider:
        """A process's own provider."""
        settings = KwokSettings(catalog=self.catalog(), boot_seconds=20, max_nodes=self.most)
        return KwokProvider(api, settings, self.world.clock)

    def _look(self) -> None:
        for name in self.paid():
            if name not in self._seen:
                self._seen.add(name)
                self._bring_up(name)

    def paid(self) -> list[str]:
        """Machines beside the first ones."""
        nodes = self.world.sim.store.sorted(NODE)
        return [node["metadata"]["name"] for node in nodes if FAKE in (node["metadata"].get("annotations") or {})]

    async def sell_out(self) -> None:
        """None is left."""
        self.available = "0"
        self.catalog()

    async def leave_one(self) -> None:
        """One is left."""
        self.available = "1"
        self.catalog()

    async def restock(self) -> None:
        """The list has no limits again."""
        self.available = ""
        self.catalog()

    async def limit(self) -> None:
        """One more is too many."""
        self.most = 0

    async def deny(self, method: str = "POST") -> None:
        """The right is missing."""
        await self.fault(type="api", method=method, path="/(configmaps|nodes)", status=403, count=50)

    async def fail_once(self, method: str = "POST") -> None:
        """The next order fails."""
        await self.fault(type="api", method=method, path="/(configmaps|nodes/)", status=503, count=1)

    async def lose_reply(self, method: str = "POST") -> None:
        """The next answer gets lost."""
        await self.fault(type="lose-reply", method=method, path="/(configmaps|nodes/)", count=_UNHEARD[method])


class DelegateRoom(_FileRoom):
    """An autoscaler that deletes a node a while after it has become empty."""

    def provider(self, api: FencedClient) -> Provider:
        """A process's own provider."""
        return DelegateProvider(api, DelegateSettings(catalog=self.catalog()))

    def paid(self) -> list[str]:
        """Machines beside the first ones."""
        return []

    def scale_down(self, name: str) -> None:
        """What the autoscaler does by itself."""
        self.world.sim.cloud.delete(name, f"autoscaler-{name}")


class StaticRoom(Room):
    """Four machines: three alike, and one bigger; all off at first."""

    machines: Mapping[str, tuple[str, int, int]] = {
        "rack1-1": ("e2-standard-2", 2, 8),
        "rack1-2": ("e2-standard-2", 2, 8),
        "rack1-3": ("e2-standard-2", 2, 8),
        "rack1-4": ("e2-standard-4", 4, 16),
    }

    def __init__(self, world: SimWorld, directory: Path) -> None:
        super().__init__(world, directory)
        self.watts = 10_000.0
        self._up: set[str] = set()
        for name in self.machines:
            (directory / name).write_text("off\n", encoding="utf-8")
        world.sim.loop.every(1000, self._look)

    def provider(self, api: FencedClient) -> Provider:
        """A process's own provider."""
        settings = StaticSettings(inventory=self.inventory(), command_seconds=2, reservation_seconds=600)
        return StaticProvider(api, settings, self.world.clock)

    def inventory(self) -> str:
        """Path of the inventory, as it is now."""
        path = self.directory / "inventory.json"
        machines = [
            {"name": name, "machine_type": kind, "vcpus": cores, "memory_gib": gib, "zone": ZONE, "watts": 100}
            for name, (kind, cores, gib) in self.machines.items()
        ]
        # The live nodes are machines of the house too; nobody switches them here.
        machines += [
            {"name": f"tiny-{n}", "machine_type": "e2-standard-2", "vcpus": 2, "memory_gib": 8, "watts": 100}
            | {"zone": f"europe-west3-{zone}"}
            for n, zone in ((1, "a"), (2, "b"), (3, "c"))
        ]
        for n in (1, 2, 3):
            if not (self.directory / f"tiny-{n}").exists():
                (self.directory / f"tiny-{n}").write_text("on\n", encoding="utf-8")

        def command(word: str) -> list[str]:
            return ["/bin/sh", str(POWER), str(self.directory), word, "{machine}"]

        body = {
            "schema": "kinema.inventory/v1",
            "machines": machines,
            "power_on": command("on"),
            "power_off": command("off"),
            "power_status": command("status"),
            "usd_per_kwh": 0.9,
            "max_watts": self.watts,
        }
        path.write_text(json.dumps(body), encoding="utf-8")
        return str(path)

    def _power(self, name: str) -> str:
        return (self.directory / name).read_text(encoding="utf-8").strip()

    def _look(self) -> None:
        """Machines that are on have a node after a while."""
        for name, (kind, _, _) in self.machines.items():
            if self._power(name) == "on" and name not in self._up:
                self._up.add(name)
                sim_offer = self.world.sim.cloud.offers[f"{kind}/{ZONE}/on-demand"]
                now = self.world.sim.loop.now
                self.world.sim.store.create(NODE, node_object(name, sim_offer, labels={}, taints=[], now=now))
                self._bring_up(name)
            elif self._power(name) == "off":
                self._up.discard(name)

    def paid(self) -> list[str]:
        """Machines beside the first ones."""
        return [name for name in self.machines if self._power(name) == "on"]

    async def sell_out(self) -> None:
        """None is left."""
        for name in self.machines:
            (self.directory / name).write_text("broken\n", encoding="utf-8")

    async def leave_one(self) -> None:
        """One works."""
        for name in [*self.machines][1:]:
            (self.directory / name).write_text("broken\n", encoding="utf-8")

    async def restock(self) -> None:
        """All are repaired."""
        for name in self.machines:
            (self.directory / name).write_text("off\n", encoding="utf-8")

    async def limit(self) -> None:
        """One more is too many."""
        self.watts = 350.0
        self.inventory()

    async def deny(self, method: str = "POST") -> None:
        """The right is missing."""
        (self.directory / "deny").touch()

    async def fail_once(self, method: str = "POST") -> None:
        """The next order fails."""
        (self.directory / "fail").touch()

    async def lose_reply(self, method: str = "POST") -> None:
        """The next answer gets lost."""
        (self.directory / "lose").touch()


ROOMS: Final[Mapping[str, type[Room]]] = {
    "sim": SimRoom,
    "kwok": KwokRoom,
    "delegate": DelegateRoom,
    "gke": GkeRoom,
    "static": StaticRoom,
}
BOOTING: Final = ("sim", "kwok", "gke", "static")
"""Providers that boot; `delegate` leaves that to the cluster's own autoscaler."""
