"""Usage history: whose it is, and that it stays small and exact."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, cluster, deployed, node, pod

from kinema_core.events import PodUsage, UsageSampled
from kinema_predictor.logic.history import History, Reach, remember

STATE = cluster(node("n1"), deployed("web", ["n1", "n1"]), pod("bare", node="n1"))
REACH = Reach(recent=timedelta(minutes=15), peaks=timedelta(hours=24))


def sampled(minutes: float, *memory: int, uid: str | None = None) -> UsageSampled:
    """A reading of `web`'s pods at this many minutes after NOW."""
    pods = tuple(
        PodUsage(pod=f"shop/web-{i}", uid=uid or f"uid-pod-shop-web-{i}", cpu=7, memory=amount)
        for i, amount in enumerate(memory)
    )
    return UsageSampled(sampled=NOW + timedelta(minutes=minutes), window_seconds=15, pods=pods)


def test_samples_belong_to_the_workload_of_their_pod() -> None:
    """Pods of a replica set count for its Deployment."""
    history = remember(History(), STATE, sampled(0, 10, 20), REACH)
    assert sorted(history.usage) == ["Deployment/shop/web"]
    assert history.of("Deployment/shop/web").recent[0].memory.tolist() == [10, 20]


def test_unknown_pods_are_left_out() -> None:
    """A pod of another uid, or without a controller, is nobody's sample."""
    history = remember(History(), STATE, sampled(0, 10, uid="uid-of-its-predecessor"), REACH)
    bare = UsageSampled(
        sampled=NOW, window_seconds=15, pods=(PodUsage(pod="shop/bare", uid="uid-pod-shop-bare", cpu=1, memory=1),)
    )
    assert not remember(history, STATE, bare, REACH).usage


def test_usage_outlives_its_pods() -> None:
    """What pods used that are gone still counts for their workload."""
    history = remember(History(), STATE, sampled(0, 10, 20), REACH)
    fewer = cluster(node("n1"), deployed("web", ["n1"]))
    history = remember(history, fewer, sampled(1, 5), REACH)
    assert [batch.memory.tolist() for batch in history.of("Deployment/shop/web").recent] == [[10, 20], [5]]


def test_the_same_reading_twice_counts_once() -> None:
    """A reading that is delivered again adds nothing."""
    once = remember(History(), STATE, sampled(0, 10, 20), REACH)
    twice = remember(once, STATE, sampled(0, 10, 20), REACH)
    assert len(twice.of("Deployment/shop/web").recent) == 1


def test_folding_leaves_the_old_history_as_it_was() -> None:
    """A fold is pure: whoever holds the earlier state still sees it."""
    once = remember(History(), STATE, sampled(0, 10), REACH)
    remember(once, STATE, sampled(1, 20), REACH)
    assert len(once.of("Deployment/shop/web").recent) == 1


def test_a_workload_without_usage_is_forgotten_after_a_day() -> None:
    """History does not grow with workloads that are long gone."""
    once = remember(History(), STATE, sampled(0, 10), REACH)
    assert "Deployment/shop/web" not in remember(once, STATE, sampled(25 * 60), REACH).usage


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_the_peaks_hold_the_maximum_of_every_window(memory: list[int]) -> None:
    """After any series the largest kept peak of each window is that window's true maximum."""
    history = History()
    for minute, amount in enumerate(memory):
        history = remember(history, STATE, sampled(minute, amount), REACH)
    peaks = history.of("Deployment/shop/web").peaks
    for start in range(len(memory)):
        kept = [peak.memory for peak in peaks if peak.sampled >= NOW + timedelta(minutes=start)]
        assert max(kept) == max(memory[start:])


def test_a_week_of_usage_stays_small() -> None:
    """Only the learning interval is kept sample by sample."""
    history = History()
    for minute in range(0, 7 * 24 * 60, 7):
        history = remember(history, STATE, sampled(minute, 100 + minute % 90), REACH)
    usage = history.of("Deployment/shop/web")
    assert len(usage.recent) <= 3
    assert len(usage.peaks) <= 91
