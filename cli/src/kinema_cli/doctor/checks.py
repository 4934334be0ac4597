"""Checks of a cluster: its API server, rights, sources of usage, and the placement policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeAlias

import msgspec

from kinema_cli.admin.steering_policy import RULES, UNSERVED, parts
from kinema_cli.inputs import GIVE_BUDGETS, NO_BUDGETS
from kinema_cli.output import counted
from kinema_core.runtime.clock import SystemClock
from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import DeniedError, KubernetesError, NotFoundError
from kinema_kubernetes.rights import Right, Rule, account, rights_of
from kinema_observer.adapters.metrics import PATH as USAGE
from kinema_observer.adapters.metrics import MetricsApi

Level: TypeAlias = Literal["ok", "warn", "fail"]
OLDEST: Final = (1, 23)
"""The first Kubernetes with all that is used: `autoscaling/v2` came with it."""
TESTED: Final = ((1, 34), (1, 36))
"""First and last minor version on which the tests run."""
MOST_SKEW: Final = 5.0
"""Seconds that the clocks of this machine and of the API server may differ."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_AT_ONCE: Final = 16
_POLICY: Final = "placement policy"


class Finding(msgspec.Struct, frozen=True):
    """Result of a check, and what to do about it.

    `warn`: Kinema works with less than it could have. `fail`: it cannot work.
    """

    check: str
    level: Level
    message: str
    remediation: str = ""


def shortened(text: str, most: int = 400) -> str:
    """Return the text, cut where it names very many things."""
    return text if len(text) <= most else f"{text[:most]} …"


class _Version(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


async def reachable(api: Client) -> list[Finding]:
    """Return version and clock of the API server.

    Raises:
        KubernetesError: there is no use in asking it for more.
    """
    clock = SystemClock()
    before = clock.now()
    answer = await api.read("/version")
    found = msgspec.json.decode(answer.body, type=_Version)
    return [_version(found, api.server), _skew(answer.date, before, clock.now())]


def _version(found: _Version, host: str) -> Finding:
    message = f"Kubernetes {found.git_version or 'of an unknown version'} at {host}"
    digits = "".join(char for char in found.minor if char.isdecimal())
    if not (found.major.isdecimal() and digits):
        return Finding("kubernetes", "warn", message, "check that it is 1.23 or newer")
    version = (int(found.major), int(digits))
    if version < OLDEST:
        return Finding("kubernetes", "fail", message, "use 1.23 or newer; autoscaling/v2 is missing here")
    if not TESTED[0] <= version <= TESTED[1]:
        first, last = (".".join(map(str, one)) for one in TESTED)
        return Finding(
            "kubernetes", "warn", f"{message}; tested with {first} to {last}", "try it on a test cluster first"
        )
    return Finding("kubernetes", "ok", message)


def _skew(date: str, before: datetime, after: datetime) -> Finding:
    """Compare the clocks; the server gives whole seconds, at some time between question and answer."""
    try:
        server = parsedate_to_datetime(date).astimezone(UTC)
    except ValueError:
        return Finding("clock", "warn", "the API server gives no time", "compare the clocks yourself")
    apart = max(server - after, before - (server + timedelta(seconds=1)), timedelta(0)).total_seconds()
    if apart > MOST_SKEW:
        message = f"the clocks of this machine and of the API server are {apart:.0f} s apart"
        return Finding("clock", "warn", message, "synchronize both by NTP; ages and deadlines are wrong by as much")
    return Finding("clock", "ok", "this machine and the API server agree on the time")


async def rights(api: Client, services: Mapping[str, Sequence[Rule]], *, accounts: str, provider: str) -> list[Finding]:
    """Return one finding for each rule that is not granted, and one for each service that has all rights.

    Args:
        api: whose credentials are asked about, unless accounts are given.
        services: rules by service.
        accounts: namespace of the service accounts to check; takes the right to ask for others.
        provider: kind of the node provider, for the advice; empty: unknown.
    """
    free = asyncio.Semaphore(_AT_ONCE)

    async def granted(service: str, right: Right) -> bool:
        async with free:
            return await _granted(api, right, service=service, accounts=accounts)

    found: list[Finding] = []
    options = f"{f' --provider {provider}' if provider else ''}{f' -n {accounts}' if accounts else ''}"
    remedy = f"kinema rbac{options} | kubectl apply -f -"
    try:
        for service, rules in services.items():
            every = [(rule, right) for rule in rules for right in rights_of(rule)]
            answers = await asyncio.gather(*(granted(service, right) for _, right in every))
            missing = [(rule, right) for (rule, right), has in zip(every, answers, strict=True) if not has]
            account_has = f"{accounts}/{account(service)} has" if accounts else "you have"
            found += _findings(service, missing, f"{account_has} all {len(every)} rights that it uses", remedy)
    except KubernetesError as error:
        found.append(Finding("rights", "fail", f"the API server does not answer about rights: {error}", remedy))
    return found


def _findings(service: str, missing: list[tuple[Rule, Right]], well: str, do: str) -> Iterator[Finding]:
    check = f"rights of {service}"
    if not missing:
        yield Finding(check, "ok", well)
    for rule in dict.fromkeys(rule for rule, _ in missing):
        lacking = ", ".join(str(right) for other, right in missing if other is rule)
        lost = f"; without: {rule.without}" if rule.without else ""
        yield Finding(
            check, "warn" if rule.without else "fail", f"{rule.purpose}: missing right to {lacking}{lost}", do
        )


async def _granted(api: Client, right: Right, *, service: str, accounts: str) -> bool:
    resource, _, part = right.resource.partition("/")
    spec: dict[str, object] = {
        "resourceAttributes": {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": part,
            "namespace": right.namespace,
            "name": right.name,
        }
    }
    kind = "SelfSubjectAccessReview"
    if accounts:
        kind = "SubjectAccessReview"
        spec["user"] = f"system:serviceaccount:{accounts}:{account(service)}"
        spec["groups"] = ["system:serviceaccounts", f"system:serviceaccounts:{accounts}", "system:authenticated"]
    question = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await api.create(f"{_REVIEWS}/{kind.lower()}s", question, manager="")
    return bool((answer.get("status") or {}).get("allowed"))


async def metrics(api: Client) -> Finding:
    """Check that the metrics API has usage of pods."""
    lost = "; without usage, requests are not changed"
    try:
        if not await api.served(USAGE.rpartition("/")[0]):
            return Finding(
                "metrics-server", "warn", f"metrics.k8s.io is not served{lost}", "install the metrics server"
            )
        usage = await MetricsApi(api).read()
    except KubernetesError as error:
        return Finding(
            "metrics-server", "warn", f"metrics.k8s.io does not answer: {error}{lost}", "look at the metrics server"
        )
    if usage is not None:
        message = f"metrics.k8s.io has usage of {counted(len(usage.pods), 'pod')}"
        return Finding("metrics-server", "ok", f"{message}, as of {usage.sampled:%Y-%m-%d %H:%M:%S} UTC")
    if not await _any_pod_runs(api):
        return Finding("metrics-server", "ok", "metrics.k8s.io is served; no pod runs")
    remedy = "wait two minutes; if there is still no usage, look at the metrics server"
    return Finding("metrics-server", "warn", f"metrics.k8s.io is served but has no usage of any pod{lost}", remedy)


async def _any_pod_runs(api: Client) -> bool:
    """Return whether any pod runs; True where that is not known."""
    try:
        running = await api.get("/api/v1/pods", limit="1", fieldSelector="status.phase=Running")
    except KubernetesError:
        return True
    return bool(running.get("items"))


async def budgets(api: Client) -> list[Finding]:
    """Check that there is a disruption budget; no finding where there is one, or where that is not known."""
    try:
        found = await api.get("/apis/policy/v1/poddisruptionbudgets", limit="1")
    except KubernetesError:  # the check of the rights says what is missing
        return []
    return [] if found.get("items") else [Finding("disruption budgets", "warn", NO_BUDGETS, GIVE_BUDGETS)]


async def recommendations(api: Client) -> Finding:
    """Check whether there are vertical autoscalers to read."""
    check, group = "recommendations", "/apis/autoscaling.k8s.io/v1"
    try:
        if not await api.served(group):
            return Finding(check, "ok", "the cluster has no VerticalPodAutoscalers; Kinema works without them")
    except KubernetesError as error:
        return Finding(check, "warn", f"it is unknown whether there are VerticalPodAutoscalers: {error}")
    return Finding(check, "ok", "VerticalPodAutoscalers are read")


async def steering(api: Client, command: str) -> Finding:
    """Check that the policies and their bindings exist; `command` installs them.

    It takes the user's right to get them: no service has or needs it.
    """
    try:
        wanted = await parts(api)
        missing = [str(part) for part in wanted if not await _is_there(api, part.path)]
    except DeniedError as error:
        rights = " and ".join(
            str(right) for rule in RULES for right in rights_of(rule) if right.verb == "get" and rule.names
        )
        return Finding(_POLICY, "warn", _unknown(error), f"check as a user with the right to {rights}")
    except KubernetesError as error:
        return Finding(_POLICY, "warn", _unknown(error))
    if not wanted:
        return Finding(_POLICY, "ok", UNSERVED)
    if missing:
        lost = "more new pods land elsewhere than planned"
        message = f"not installed: {', '.join(missing)}; {lost}"
        return Finding(_POLICY, "warn", message, command)
    return Finding(_POLICY, "ok", f"installed: {', '.join(str(part) for part in wanted)}")


def _unknown(error: KubernetesError) -> str:
    return f"it is unknown whether the admission policy is installed: {error}"


async def _is_there(api: Client, path: str) -> bool:
    try:
        await api.read(path)
    except NotFoundError:
        return False
    return True
