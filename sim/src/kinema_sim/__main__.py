"""Serve a simulated cluster, or a simulated cloud for a real API server whose nodes KWOK runs.

`python -m kinema_sim --scenario after-peak --speed 10 --kubeconfig FILE`
`python -m kinema_sim --nodes-of KUBECONFIG --speed 10`
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

from kinema_core.runtime.collector import quick_imports

with quick_imports():
    from kinema_core.runtime import starter
    from kinema_kubernetes.client import connect
    from kinema_kubernetes.errors import KubernetesError
    from kinema_sim.cluster import Cluster
    from kinema_sim.front.kwok import KwokNodes
    from kinema_sim.front.server import Server, write_kubeconfig
    from kinema_sim.scenarios.registry import SCENARIOS


def _arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kinema_sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default="after-peak", help="where to start")
    parser.add_argument(
        "--nodes-of", metavar="KUBECONFIG", default="", help="serve a cloud alone, for a cluster with KWOK"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides names, uids and delays")
    parser.add_argument("--speed", type=float, default=10.0, help="virtual seconds per wall second")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="TCP port, 0 for any free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write a kubeconfig")
    parser.add_argument("--token", default="", help="bearer token that callers must show")
    parser.add_argument(starter.FLAG, action="store_true", help=starter.MEANING)
    return parser.parse_args(arguments)


async def _serve(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    if options.until_stdin_ends:
        starter.call_when_gone(stop.set)
    client, following = None, None
    if options.nodes_of:
        cluster = Cluster(options.seed, recorded=False, metered=False)
        client = await connect(options.nodes_of)
        nodes = KwokNodes(client, cluster)
        for name in await nodes.adopt():
            sys.stderr.write(f"node {name}: no KWOK node of a machine type on sale: it is left alone\n")
        following = asyncio.create_task(nodes.follow())
    else:
        cluster = SCENARIOS[options.scenario](options.seed)
    server = Server(cluster, speed=options.speed, token=options.token)
    address = await server.start(options.port, options.host)
    if options.kubeconfig is not None:
        write_kubeconfig(options.kubeconfig, url=address.url, token=options.token or "none")
    sys.stdout.write(json.dumps({"url": address.url, "port": address.port}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop()
    if client is not None and following is not None:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # the end that was asked for
            await following
        await client.close()


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    options = _arguments()
    if options.speed <= 0:
        sys.stderr.write(f"--speed must be positive, not {options.speed}\n")
        return 2
    try:
        asyncio.run(_serve(options))
    except (OSError, KubernetesError) as error:
        sys.stderr.write(f"cannot serve: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
