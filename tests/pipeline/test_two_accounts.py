"""Two clusters on one broker, each in an account of its own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from tests.pipeline.pipeline_harness import check, run_strategies
from tests.support.nkey_users import user_key

from kinema_cli.local.demo import CLUSTER, DemoOptions, service_settings
from kinema_cli.local.nats_server import NatsServer
from kinema_cli.local.pipeline import LocalPipeline, PipelineOptions
from kinema_cli.local.simulator import Simulator
from kinema_core.runtime.rights import ACCOUNT_BYTES, USERS, account_name, accounts
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.setup import Layout, setup

pytestmark = pytest.mark.pipeline


class Tenant(LocalPipeline):
    """A pipeline whose services prove themselves with keys of its account."""

    def __init__(self, options: PipelineOptions, keys: Path) -> None:
        self._keys = keys
        super().__init__(options)

    def runtime(self, user: str) -> RuntimeSettings:
        """Return settings with which a user of the broker connects."""
        return msgspec.structs.replace(super().runtime(user), nats_user=user, nats_seed_file=str(self._keys / user))


def made_users(keys: Path) -> dict[str, str]:
    """Make a key for each user, its seed in a file; returns the public ones."""
    keys.mkdir()
    made = {user: user_key() for user in USERS}
    for user, key in made.items():
        (keys / user).write_text(key.seed, encoding="utf-8")
    return {f"{user}@{CLUSTER}": key.public for user, key in made.items()}


async def test_pipelines_side_by_side_do_not_notice_each_other(tmp_path: Path) -> None:
    """Even with the same name for the cluster, and so with the same subjects and ids, each reaches its own optimum."""
    names = ("one", "two")
    block = {
        name: accounts(made_users(tmp_path / name), [CLUSTER], proof="nkey")[account_name(CLUSTER)] for name in names
    }
    store = {"store_dir": str(tmp_path / "data"), "max_file_store": len(names) * ACCOUNT_BYTES}
    server = NatsServer(tmp_path / "nats", more={"accounts": block, "jetstream": store})

    async def run(name: str) -> None:
        async def start(options: DemoOptions, simulator: Simulator, **more: object) -> LocalPipeline:
            reading = await simulator.clock()
            settings = more["settings"]
            assert isinstance(settings, dict)
            tenant = Tenant(
                PipelineOptions(
                    directory=options.out,
                    cluster=CLUSTER,
                    kubeconfig=options.out / "kubeconfig",
                    provider={"kind": "sim", "url": simulator.url},
                    clock_speed=reading.speed,
                    clock_epoch=reading.now,
                    clock_started=time.time(),  # noqa: TID251 - ties the clocks of services to the simulator
                    settings={**service_settings(), **settings},
                    nats=RuntimeSettings(cluster=CLUSTER, nats_url=server.url),
                ),
                tmp_path / name,
            )
            await setup(tenant.runtime("admin"), Layout(clusters=(CLUSTER,)))
            await tenant.start()
            return tenant

        outcome = await run_strategies(tmp_path / f"run-{name}", start=start)
        check(outcome)

    server.start()
    try:
        await asyncio.gather(*map(run, names))
    finally:
        server.stop()
