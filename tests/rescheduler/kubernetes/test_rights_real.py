"""The stated rights on a real API server: with them everything works, and the doctor misses each that is taken away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.controlplane.access import Access
from tests.controlplane.nodes import node, nodes_for_a_while
from tests.controlplane.plane import ControlPlane
from tests.rescheduler.capabilities import CAPABILITIES, Ground, clean_up, forget_all, prepare
from tests.support.kube_requests import single

from kinema_cli.doctor.checks import rights
from kinema_kubernetes import client
from kinema_kubernetes.client import Client
from kinema_kubernetes.rights import Rule, account, covers, manifests, rights_of
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.rights import rules

pytestmark = pytest.mark.cluster

HOME = "kinema-rights"
SERVICE = "rescheduler"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
PATIENCE_SECONDS = 30.0


@dataclass
class Account:
    """The service's account, with rights that a test may take away."""

    plane: ControlPlane
    access: Access
    kubeconfig: Path
    api: Client

    async def grant(self, given: Sequence[Rule]) -> None:
        """Give it exactly these rules, as `kinema rbac` writes them."""
        for item in manifests(SERVICE, given, namespace=HOME):
            meta = item["metadata"]
            where = f"{ROLES}/namespaces/{meta['namespace']}" if item["kind"] in {"Role", "RoleBinding"} else ROLES
            content = {key: item[key] for key in ("rules", "roleRef", "subjects") if key in item}
            if item["kind"] != "ServiceAccount":
                kind = {"apiVersion": item["apiVersion"], "kind": item["kind"]}
                path = f"{where}/{item['kind'].lower()}s/{meta['name']}"
                await asyncio.to_thread(self.plane.admin.apply, path, kind, **content)

    async def missing(self, wanted: Sequence[Rule]) -> list[str]:
        """The rights that the doctor misses, rule by rule."""
        found = await rights(self.api, {SERVICE: wanted}, accounts="", provider="kwok")
        said = [item.message for item in found if item.level != "ok"]
        return [message.partition("missing right to ")[2].partition(";")[0] for message in said]

    async def until_missing(self, wanted: Sequence[Rule], said: list[str]) -> None:
        """Wait until the API server has seen the change of roles, and the doctor misses exactly these rights."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self.missing(wanted) != said:  # noqa: ASYNC110 - nobody tells when it has
                await asyncio.sleep(0.05)


@pytest.fixture
async def service(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Account]:
    """An account without any right yet, on a control plane with two nodes."""
    admin = control_plane.admin
    access = await asyncio.to_thread(admin.account, HOME, account(SERVICE), [])
    kubeconfig = access.write_kubeconfig(tmp_path / "account")
    api = await client.connect(str(kubeconfig))
    yield Account(control_plane, access, kubeconfig, api)
    await api.close()


@pytest.fixture
async def ground(service: Account, tmp_path: Path) -> AsyncIterator[Ground]:
    """Nodes, a namespace, and connections with all rights and with the service's."""
    admin_access = service.plane.admin
    with nodes_for_a_while(admin_access, node("rights-1"), node("rights-2")):
        admin = await connect(str(admin_access.write_kubeconfig(tmp_path / "admin")))
        mine = await connect(str(service.kubeconfig))
        await prepare(admin)
        await forget_all(admin)
        yield Ground(admin, mine, "rights-1")
        await clean_up(admin)
        await mine.close()
        await admin.close()


async def test_everything_works_with_exactly_these_rights(service: Account, ground: Ground) -> None:
    """Each thing that the rescheduler can do is done with the token of an account that `kinema rbac` describes."""
    wanted = rules("sim")
    await service.grant(wanted)
    await service.until_missing(wanted, [])
    for do in CAPABILITIES.values():
        await do(ground)


async def test_the_doctor_misses_every_right_that_is_taken_away(service: Account) -> None:
    """Whichever verb on whichever resource a role lacks, the doctor names that one and no other."""
    wanted = rules("kwok")
    every = single(wanted)
    for gone in every:
        taken = next(rights_of(gone))
        left = [rule for rule in every if not covers(rule, taken)]
        said = [
            ", ".join(str(right) for right in rights_of(rule) if covers(gone, right))
            for rule in wanted
            if any(covers(gone, right) for right in rights_of(rule))
        ]
        await service.grant(left)
        await service.until_missing(wanted, said)
