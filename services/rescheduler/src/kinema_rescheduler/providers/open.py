"""Choosing a provider by the settings."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from kinema_core.runtime.clock import Clock
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.providers.base import Catalog, Provider
from kinema_rescheduler.providers.catalog import check_prices, read_prices
from kinema_rescheduler.providers.cluster_api import ClusterApiProvider
from kinema_rescheduler.providers.delegate import DelegateProvider
from kinema_rescheduler.providers.gke import GkeProvider, read_missing_rights
from kinema_rescheduler.providers.google import GoogleApi
from kinema_rescheduler.providers.karpenter import KarpenterProvider
from kinema_rescheduler.providers.kwok import KwokProvider
from kinema_rescheduler.providers.sim import SimProvider
from kinema_rescheduler.providers.static.inventory import read_inventory
from kinema_rescheduler.providers.static.provider import StaticProvider
from kinema_rescheduler.settings import (
    ClusterApiSettings,
    DelegateSettings,
    GkeSettings,
    KarpenterSettings,
    KwokSettings,
    Settings,
    SimSettings,
    StaticSettings,
)


async def open_provider(
    settings: Settings, api: FencedClient, *, clock: Clock, stack: AsyncExitStack, fence: Fence | None = None
) -> Provider:
    """Return the provider that the settings name; `stack` closes it, and it asks the fence before every write.

    Raises:
        PermanentError: `invalid`, a file that it needs cannot be used.
    """
    found: Provider
    match settings.provider:
        case SimSettings(url=url, token_file=token_file):
            found = sim = SimProvider(
                url, token=_token(token_file), timeout_seconds=settings.request_seconds, fence=fence
            )
            stack.push_async_callback(sim.close)
        case KwokSettings() as chosen:
            await read_prices(chosen.catalog)
            found = KwokProvider(api, chosen, clock)
        case DelegateSettings() as chosen:
            await read_prices(chosen.catalog)
            found = DelegateProvider(api, chosen)
        case GkeSettings() as chosen:
            await check_prices(chosen.catalog)
            google = _google(chosen, clock, settings.request_seconds, fence)
            stack.push_async_callback(google.close)
            found = GkeProvider(api, chosen, google)
        case KarpenterSettings() as chosen:
            await check_prices(chosen.catalog)
            found = KarpenterProvider(api, chosen)
        case ClusterApiSettings(kubeconfig=kubeconfig) as chosen:
            await check_prices(chosen.catalog)
            management = api
            if kubeconfig:
                management = await connect(kubeconfig, timeout_seconds=settings.request_seconds, fence=fence)
                stack.push_async_callback(management.close)
            found = ClusterApiProvider(api, management, chosen)
        case StaticSettings() as chosen:
            read_inventory(Path(chosen.inventory))
            found = StaticProvider(api, chosen, clock, fence)
    return found


async def read_catalog(settings: Settings, clock: Clock) -> Catalog:
    """Return what the provider that the settings name sells just now.

    Raises:
        EffectError: the cluster, the provider or a file that it needs cannot be used.
    """
    async with AsyncExitStack() as stack:
        seconds = settings.request_seconds
        api = await connect(settings.kubeconfig, context=settings.context, timeout_seconds=seconds)
        stack.push_async_callback(api.close)
        return await (await open_provider(settings, api, clock=clock, stack=stack)).catalog()


async def missing_rights(settings: Settings, clock: Clock) -> tuple[str, ...]:
    """Return the rights that the provider's account lacks at the cloud; none where the provider cannot ask.

    Raises:
        EffectError: the cluster or the provider cannot be used.
    """
    if not isinstance(settings.provider, GkeSettings):
        return ()
    async with AsyncExitStack() as stack:
        google = _google(settings.provider, clock, settings.request_seconds, None)
        stack.push_async_callback(google.close)
        return await read_missing_rights(settings.provider, google)


def _google(chosen: GkeSettings, clock: Clock, seconds: float, fence: Fence | None) -> GoogleApi:
    command, url = chosen.token_command, chosen.token_url
    return GoogleApi(clock, token_command=command, token_url=url, timeout_seconds=seconds, fence=fence)


def _token(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise PermanentError("invalid", f"provider.token_file {path}: {error.strerror}") from error
