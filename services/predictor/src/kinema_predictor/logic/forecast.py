"""Recommendation of requests from what usage is expected to need: refusals, floors, bounded step.

Source of the bounded step, the floors and VPA as the other source: the Kinema thesis, algorithm 5, with the step taken
as a bound on the change, not as a factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from kinema_core.events import (
    EMPTY,
    Amounts,
    AnyBody,
    ForecastMade,
    ForecastRefused,
    FrozenMap,
    Pod,
    Recommendation,
    StepFailed,
    StepStarted,
    StepSucceeded,
    UsageBand,
    UsageTotals,
    Workload,
    WorkloadForecast,
    WorkloadJudged,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.vocabulary import GITOPS
from kinema_predictor.logic.ahead import replicas_ahead
from kinema_predictor.logic.checking import Check, checked
from kinema_predictor.logic.history import History
from kinema_predictor.logic.judging import RESOURCES, Judged, RefusedError, Resource, Risk, judge

MAX_STEP: Final = "kinema.io/rightsizing-max-step"
MODE: Final = "kinema.io/rightsizing"
RISK: Final = "kinema.io/rightsizing-risk"
CPU_FLOOR: Final = 10
"""Millicores."""
MEMORY_MARGIN: Final = Fraction(11, 10)
"""Above the largest sample of a day."""
WORTH: Final = Fraction(1, 100)
"""A smaller change of every resource is not worth a restart."""
SETTLED: Final = timedelta(minutes=15)
"""Time since a container ended abnormally, before which its pod says nothing about need."""
OF_AGE: Final = timedelta(hours=24)
"""Age of a VerticalPodAutoscaler from which its recommendation counts."""

Mode: TypeAlias = Literal["off", "recommend", "apply"]
MODES: Final[tuple[Mode, ...]] = ("off", "recommend", "apply")


@dataclass(frozen=True)
class Rules:
    """Limits that an operator sets; times are of the cluster."""

    max_change: Fraction
    """Largest change of a request in one iteration, as a fraction of it."""
    mode: Mode = "apply"
    risk: Risk = field(default_factory=lambda: Risk(cpu=0.05, memory=0.001))
    horizon: timedelta = timedelta(days=1)
    least_age: timedelta = timedelta(days=1)
    """Of the history, before anything falls."""
    least_coverage: float = 0.7
    """Share of the history's steps with a sample, before anything falls."""
    refresh: timedelta = timedelta(hours=1)
    """Age of a judgement from which it is made again."""
    max_age: timedelta = timedelta(days=1)
    """Age of a judgement from which it counts no longer."""
    batch: int = 250
    """Workloads that are judged in one iteration: the oldest judgements go first."""
    ahead_hours: float = 0.0
    """Span for which the number of replicas is forecast; 0: it is not."""
    ahead_share: float = 0.5
    """Share of the days on which a workload had so many replicas at the same time."""


@dataclass(frozen=True)
class Memory:
    """What earlier iterations found and what became of their requests, a fold over the log."""

    judged: Mapping[str, tuple[datetime, WorkloadJudged]] = field(default_factory=dict)
    refused: Mapping[str, tuple[datetime, ForecastRefused]] = field(default_factory=dict)
    """Of those that were asked about and could not be judged."""
    rolling: Mapping[str, tuple[str, Amounts]] = field(default_factory=dict)
    """Workload and new requests of rolls that were begun, by step."""
    rolled: Mapping[str, Amounts] = field(default_factory=dict)
    """Requests that a roll has written, by workload."""
    reverted: Mapping[str, Amounts] = field(default_factory=dict)
    """Requests by which an owner has replaced those of a roll, by workload: as long as they are so, they stay."""

    def with_step(self, body: AnyBody) -> Memory:
        """Return what is remembered after a step of an execution."""
        match body:
            case StepStarted(step=step) if step.kind == "roll" and step.requests:
                return replace(self, rolling={**self.rolling, f"{body.plan} {step.id}": (step.target, step.requests)})
            case StepStarted(step=step) if step.kind == "revert":
                return replace(self, rolled={key: value for key, value in self.rolled.items() if key != step.target})
            case StepSucceeded() | StepFailed(retry=False) if f"{body.plan} {body.step}" in self.rolling:
                rolling = dict(self.rolling)
                target, requests = rolling.pop(f"{body.plan} {body.step}")
                made = isinstance(body, StepSucceeded) and body.outcome != "void"
                return replace(self, rolling=rolling, rolled={**self.rolled, target: requests} if made else self.rolled)
            case _:
                return self

    def reversal(self, workload: Workload) -> RefusedError | None:
        """Return the refusal of a workload whose owner, or a GitOps tool, has put requests of its own in again."""
        now = FrozenMap({name: amount for name, amount in workload.template_requests.items() if name in RESOURCES})
        written = self.rolled.get(workload.key, EMPTY)
        again = any(now.get(name) != amount for name, amount in written.items())
        if not again and self.reverted.get(workload.key) != now:
            return None
        marks = {*workload.labels, *workload.annotations}
        manager = next((tool for mark, tool in GITOPS.items() if mark in marks), "owner")
        return RefusedError("reverted", manager=manager, **now)

    def with_answer(self, time: datetime, body: ForecastMade) -> Memory:
        """Return what is remembered after an answer."""
        news = {one.workload: (time, one) for one in body.judged}
        lost = {one.workload: (time, one) for one in body.refused if one.reason in _OF_DATA}
        stays = {one.workload: _amounts(one) for one in body.refused if one.reason == "reverted"}
        changed = {one.workload for one in body.forecasts}
        reverted = {**{key: value for key, value in self.reverted.items() if key not in changed}, **stays}
        if reverted != self.reverted:
            rolled = {key: value for key, value in self.rolled.items() if key not in stays}
            return replace(self, rolled=rolled, reverted=reverted).with_answer(time, body)
        if not news and not lost:
            return self
        refused = {key: value for key, value in {**self.refused, **lost}.items() if key not in news}
        judged = {key: value for key, value in {**self.judged, **news}.items() if time - value[0] <= _FORGOTTEN}
        kept = {key: value for key, value in refused.items() if time - value[0] <= _FORGOTTEN}
        return replace(self, judged=judged, refused=kept)


def _amounts(refused: ForecastRefused) -> Amounts:
    """Return the requests that a refusal names."""
    return FrozenMap({name: int(value) for name, value in refused.figures.items() if name != "manager"})


_FORGOTTEN: Final = timedelta(days=31)
"""Age from which nothing is remembered, such as of a workload that is gone."""
_OF_DATA: Final = frozenset({"no-data", "stale", "few-samples", "level-broken"})
"""Reasons that judging gives."""


@dataclass(frozen=True)
class _Asked:
    """One workload that can be sized."""

    workload: Workload
    pods: Sequence[Pod]
    mode: Mode
    max_change: Fraction
    risk: Risk
    names: tuple[str, ...]
    """Resources that can be changed."""


def forecasts(
    cluster: Cluster, history: History, now: datetime, rules: Rules, memory: Memory | None = None
) -> ForecastMade:
    """Return a forecast, a judgement or a refusal for every workload with pods that no other workload stands above."""
    memory = memory or Memory()
    asked, refused = _asked(cluster, now, rules)
    news, lost = _judge_due(cluster, history, asked, now=now, rules=rules, memory=memory)
    made: list[WorkloadForecast] = []
    counted: list[tuple[_Asked, WorkloadJudged]] = []
    for key, one in asked.items():
        known = news.get(key) or _known(key, memory, now, rules)
        if known is not None:
            counted.append((one, known))
        if key in lost and known is None:
            refused[key] = lost[key]
        elif known is None:
            refused[key] = (
                memory.refused[key][1] if key in memory.refused else _refusal(key, RefusedError("not-judged"))
            )
        elif one.mode != "apply":
            refused[key] = _refusal(key, RefusedError("recommend-only"))
        elif (reversal := memory.reversal(one.workload)) is not None:
            refused[key] = _refusal(key, reversal)
        elif one.workload.type != "Deployment":
            refused[key] = _refusal(key, RefusedError("not-a-deployment", type=one.workload.type))
        else:
            made.append(_forecast(one, known))
    return ForecastMade(
        version=cluster.version,
        forecasts=tuple(made),
        refused=tuple(refused[key] for key in sorted(refused)),
        judged=tuple(news[key] for key in sorted(news)),
        totals=_totals(
            counted, checked(history, {key: memory.judged[key] for key in sorted(news) if key in memory.judged})
        ),
        ahead=replicas_ahead(cluster, history, rules.ahead_hours, rules.ahead_share),
    )


def _totals(
    counted: Sequence[tuple[_Asked, WorkloadJudged]], checks: Mapping[Resource, Check]
) -> tuple[UsageTotals, ...]:
    found = []
    for name in RESOURCES:
        of_it = [(one, known.recommended[name]) for one, known in counted if name in known.recommended]
        if of_it:
            found.append(
                UsageTotals(
                    resource=name,
                    requested=sum(one.workload.template_requests.get(name, 0) * len(one.pods) for one, _ in of_it),
                    recommended=sum(amount * len(one.pods) for one, amount in of_it),
                    steps=checks[name].steps,
                    above=checks[name].above,
                )
            )
    return tuple(found)


def _asked(cluster: Cluster, now: datetime, rules: Rules) -> tuple[dict[str, _Asked], dict[str, ForecastRefused]]:
    asked: dict[str, _Asked] = {}
    refused: dict[str, ForecastRefused] = {}
    labels = {one.name: one.labels for one in cluster.namespaces}
    acting = {_target(one) for one in cluster.recommendations if one.mode != "Off"}
    for workload in cluster.workloads:
        pods = cluster.pods_by_workload.get(workload.key, ())
        if not pods:
            continue
        try:
            if workload.key in acting:
                raise RefusedError("vpa-acts")  # noqa: TRY301 - one of the refusals of this workload
            mode = _mode(workload, labels.get(workload.namespace, FrozenMap()), rules)
            change, risk = _max_change(workload, rules), _risk(workload, rules)
            names = _fit(workload, pods, now)
            asked[workload.key] = _Asked(workload, pods, mode if change else "recommend", change, risk, names)
        except RefusedError as error:
            refused[workload.key] = _refusal(workload.key, error)
    return asked, refused


def _judge_due(
    cluster: Cluster, history: History, asked: Mapping[str, _Asked], *, now: datetime, rules: Rules, memory: Memory
) -> tuple[dict[str, WorkloadJudged], dict[str, ForecastRefused]]:
    """Judge those whose judgement is oldest, as many as one iteration may."""
    if not history.rows:
        return {}, {key: _refusal(key, RefusedError("no-data")) for key in asked}
    tried = {key: time for key, (time, _) in [*memory.judged.items(), *memory.refused.items()]}
    retry = min(rules.refresh, history.step)
    due = [
        key
        for key in asked
        if key not in tried or now - tried[key] >= (retry if key in memory.refused else rules.refresh)
    ]
    # Those never asked about come first.
    due.sort(key=lambda key: (key in tried, tried.get(key, now), key))
    due = sorted(due[: rules.batch])
    before = {
        (key, band.resource): frozenset(band.models)
        for key in due
        if key in memory.judged
        for band in memory.judged[key][1].bands
    }
    found = judge(
        history,
        due,
        risks={key: asked[key].risk for key in due},
        horizon=rules.horizon,
        capacity=largest_node(cluster),
        before=before,
    )
    news: dict[str, WorkloadJudged] = {}
    lost: dict[str, ForecastRefused] = {}
    advice = _advice(cluster, now)
    scaled = {(one.target_kind, one.namespace, one.target_name) for one in cluster.autoscalers if _on_cpu(one.metrics)}
    for key, result in found.items():
        if isinstance(result, RefusedError):
            lost[key] = _refusal(key, result)
            continue
        workload = asked[key].workload
        is_scaled = (workload.type, workload.namespace, workload.name) in scaled
        news[key] = _recommended(asked[key], result, rules, advice.get(key), is_scaled=is_scaled)
    return news, lost


def _known(key: str, memory: Memory, now: datetime, rules: Rules) -> WorkloadJudged | None:
    """Return the last judgement, unless it is too old."""
    time, judged = memory.judged.get(key, (now - 2 * rules.max_age, None))
    return judged if judged is not None and now - time <= rules.max_age else None


def _recommended(
    asked: _Asked, judged: Judged, rules: Rules, advice: Recommendation | None, *, is_scaled: bool
) -> WorkloadJudged:
    current = asked.workload.template_requests
    wanted: dict[str, int] = {}
    kept: dict[str, str] = {}
    for name in RESOURCES:
        band = judged.band(name)
        if name not in asked.names or band is None:
            continue
        amount = _floored(name, _needed(current[name], band), judged.memory_peak)
        reason = _stays(asked, name, amount, band.days, band.coverage, rules, is_scaled=is_scaled)
        young = band.days * 86_400 < rules.least_age.total_seconds()
        if young and advice is not None and advice.target.get(name):
            # The other source of the thesis, for as long as there is too little history.
            amount = _floored(name, _within(advice, name), judged.memory_peak)
            reason = _stays(asked, name, amount, float("inf"), 1.0, rules, is_scaled=is_scaled)
        if reason:
            kept[name] = reason
            amount = max(current[name], amount) if reason != "autoscaled" else current[name]
        wanted[name] = _below(asked.workload.template_ceiling.get(name), amount)
    return WorkloadJudged(
        workload=asked.workload.key,
        pods=len(asked.pods),
        requests=FrozenMap({name: current[name] for name in RESOURCES if name in current}),
        recommended=FrozenMap(wanted),
        bands=judged.bands,
        kept=FrozenMap(kept),
    )


def _needed(current: int, band: UsageBand) -> int:
    """Return what a pod needs: what it requests, where that is below the need and lacks hardly any of what is enough.

    To lack less than is worth a restart is no reason to raise a request by the reserve as well.
    """
    lacking = (band.need if band.enough is None else band.enough) - current
    return current if current < band.need and lacking < WORTH * current else band.need


def _floored(name: str, need: int, peak: int) -> int:
    return max(need, CPU_FLOOR) if name == "cpu" else max(need, _up(peak * MEMORY_MARGIN))


def _within(advice: Recommendation, name: str) -> int:
    """Return VPA's target, clamped to its bounds."""
    target = advice.target[name]
    return min(max(target, advice.lower.get(name, target)), advice.upper.get(name, target))


def _stays(
    asked: _Asked, name: str, amount: int, days: float, coverage: float, rules: Rules, *, is_scaled: bool
) -> str:
    """Return why a request must not fall; empty where it may."""
    current = asked.workload.template_requests[name]
    if name == "cpu" and is_scaled:
        # Its autoscaler holds usage near a share of the request: another request means other replicas.
        return "autoscaled"
    if amount >= current:
        return ""
    if days * 86_400 < rules.least_age.total_seconds():
        return "young"
    if coverage < rules.least_coverage:
        return "sparse"
    ceiling = asked.workload.template_ceiling
    if all(ceiling.get(one) == asked.workload.template_requests.get(one) for one in RESOURCES):
        # Requests equal limits: with others the pods would be evicted sooner.
        return "guaranteed"
    return ""


def _forecast(asked: _Asked, judged: WorkloadJudged) -> WorkloadForecast:
    """Move the requests towards what is recommended, by the largest step that is allowed."""
    current, ceiling = asked.workload.template_requests, asked.workload.template_ceiling
    after, last = {}, {}
    for name in asked.names:
        wanted = judged.recommended.get(name)
        if wanted is None:
            continue
        amount = stepped(current[name], wanted, asked.max_change)
        if name == "memory":
            # A pod in reach of the out-of-memory killer does not wait for the next step.
            amount = max(amount, wanted)
        if 0 < wanted - current[name] < WORTH * current[name]:
            # Beside a request that falls it would make a plan one that raises requests, whatever that costs.
            amount = wanted = current[name]
        after[name] = _below(ceiling.get(name), amount)
        last[name] = _below(ceiling.get(name), wanted)
    worth = any(abs(amount - current[name]) >= WORTH * current[name] for name, amount in after.items())
    cpu = next((band for band in judged.bands if band.resource == "cpu"), None)
    return WorkloadForecast(
        workload=asked.workload.key,
        requests_before=current,
        requests_after=FrozenMap({**current, **after}) if worth else current,
        predicted=FrozenMap({band.resource: band.need for band in judged.bands}),
        samples=0 if cpu is None else cpu.steps,
        recommended=FrozenMap({**current, **last}) if worth else current,
    )


def _below(ceiling: int | None, amount: int) -> int:
    """Return at most the ceiling: the API server refuses requests above the limit, so a rolling update would fail."""
    return amount if ceiling is None else min(amount, ceiling)


def stepped(current: int, predicted: int, max_change: Fraction) -> int:
    """Return the current request moved towards the prediction, by at most `max_change` of itself (rounded down)."""
    most = int(current * max_change)
    return current + max(-most, min(most, predicted - current))


def _mode(workload: Workload, labels: Mapping[str, str], rules: Rules) -> Mode:
    """Return what may be done: the workload's annotation, its namespace's label, the setting."""
    text = workload.annotations.get(MODE) or labels.get(MODE) or rules.mode
    mode = next((one for one in MODES if one == text.strip()), None)
    if mode is None:
        raise RefusedError("invalid-mode", annotation=MODE, value=text)
    if mode == "off":
        raise RefusedError("turned-off")
    return mode


def _max_change(workload: Workload, rules: Rules) -> Fraction:
    text = workload.annotations.get(MAX_STEP)
    if text is None:
        return rules.max_change
    try:
        max_change = Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        raise RefusedError("invalid-max-step", annotation=MAX_STEP, value=text) from error
    if not 0 <= max_change <= 1:
        raise RefusedError("invalid-max-step", annotation=MAX_STEP, value=text)
    if max_change == 0:
        raise RefusedError("turned-off")
    return max_change


def _risk(workload: Workload, rules: Rules) -> Risk:
    text = workload.annotations.get(RISK)
    if text is None:
        return rules.risk
    try:
        share = float(Fraction(text.strip().removesuffix("%"))) / (100 if text.strip().endswith("%") else 1)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise RefusedError("invalid-risk", annotation=RISK, value=text) from error
    if not 0 < share <= 0.5:
        raise RefusedError("invalid-risk", annotation=RISK, value=text)
    return Risk(cpu=share, memory=rules.risk.memory)


def _fit(workload: Workload, pods: Sequence[Pod], now: datetime) -> tuple[str, ...]:
    """Return the resources of which requests can be changed; raises RefusedError where none can be just now."""
    current = workload.template_requests
    if not any(current.get(name, 0) for name in RESOURCES):
        raise RefusedError("no-requests")
    names = _changeable(workload, current)
    if not names:
        raise RefusedError("requests-not-of-containers")
    others = sum(any(pod.requests.get(name, 0) != current.get(name, 0) for name in RESOURCES) for pod in pods)
    if others:
        # A roll-out is under way, or admission adds to the pods what their template does not state.
        raise RefusedError("requests-differ-from-template", pods=others)
    for pod in pods:
        if pod.last_restart is not None and pod.last_restart > now - SETTLED:
            ago = (now - pod.last_restart).total_seconds()
            raise RefusedError("restarted", pod=pod.key, ago_seconds=ago)
    return names


def _changeable(workload: Workload, current: Amounts) -> tuple[str, ...]:
    """Resources of which the template asks for exactly what its containers do.

    A rolling update writes requests of containers only. Where an init container, a sidecar, overhead or what is written
    for the pod as a whole says more, the pods would never ask for what was forecast, and be rolled again and again.
    """
    stated = workload.template_containers
    found = []
    for name in RESOURCES:
        amount = current.get(name, 0)
        whole = any(not one.name and name in one.requests for one in stated)
        asked = sum(one.requests.get(name, 0) for one in stated if one.name and not one.init)
        if amount > 0 and (not stated or (asked == amount and not whole)):
            found.append(name)
    return tuple(found)


def largest_node(cluster: Cluster) -> dict[str, int]:
    """Return what the largest node has of each resource; 0 where no node is known."""
    return {name: max((node.allocatable.get(name, 0) for node in cluster.nodes), default=0) for name in RESOURCES}


def _on_cpu(metrics: Sequence[object]) -> bool:
    return any("cpu" in str(getattr(metric, "name", "")) for metric in metrics)


def _advice(cluster: Cluster, now: datetime) -> dict[str, Recommendation]:
    """Return the recommendations of VerticalPodAutoscalers that are a day old, by workload."""
    return {
        _target(one): one for one in cluster.recommendations if one.created is not None and now - one.created >= OF_AGE
    }


def _target(advice: Recommendation) -> str:
    return f"{advice.target_kind}/{advice.namespace}/{advice.target_name}"


def _refusal(key: str, error: RefusedError) -> ForecastRefused:
    return ForecastRefused(workload=key, reason=error.reason, figures=FrozenMap(dict(sorted(error.figures.items()))))


def _up(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)
