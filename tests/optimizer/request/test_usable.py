"""Usable resources of the cluster-threshold thesis."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinema_core.events import FrozenMap
from kinema_optimizer.request.usable import Ratio, UsableResources, fill_of

GIGA = 10**9
THESIS = UsableResources(
    max_percent=FrozenMap({"cpu": 80, "memory": 80}),
    min_free=FrozenMap({"cpu": "100m", "memory": "400M"}),
    ratios=(
        Ratio(resource="cpu", most="3600m", per="memory", amount="1G"),
        Ratio(resource="memory", most="20G", per="cpu", amount="1"),
    ),
)


def amounts(cpu: int, memory: float) -> FrozenMap[int]:
    """Millicores and gigabytes."""
    return FrozenMap({"cpu": cpu, "memory": int(memory * GIGA)})


def test_figure_of_the_thesis() -> None:
    """Two nodes of 4000m and 8G: of the first 200m and 4G of what is left count, of the second nothing."""
    has = amounts(4000, 8)
    found = fill_of([(has, amounts(3800, 1.5)), (has, amounts(1600, 8))], THESIS)
    assert (found["cpu"].requested, found["cpu"].usable) == (5400, 5600)
    assert (found["memory"].requested, found["memory"].usable) == (int(9.5 * GIGA), int(13.5 * GIGA))


def test_too_little_of_one_resource_makes_the_rest_useless() -> None:
    """What is in use still counts as usable; nothing that is left does."""
    assert THESIS.free({"cpu": 99, "memory": 8 * GIGA}) == {"cpu": 0, "memory": 0}
    assert THESIS.free({"cpu": 100, "memory": 8 * GIGA}) == {"cpu": 100, "memory": 2 * GIGA}


def test_any_number_of_resources() -> None:
    """A third resource has its threshold and its ratio like the two of the source."""
    rule = UsableResources(
        max_percent=FrozenMap({"nvidia.com/gpu": 90}),
        ratios=(Ratio(resource="nvidia.com/gpu", most="1", per="cpu", amount="4"),),
    )
    assert rule.free({"cpu": 9000, "nvidia.com/gpu": 4})["nvidia.com/gpu"] == 2


@given(cpu=st.integers(0, 4000), memory=st.integers(0, 16 * GIGA), times=st.integers(1, 5))
def test_a_piece_is_usable_as_a_whole_however_many_share_a_node(cpu: int, memory: int, times: int) -> None:
    """Room for so many pieces on one node counts in full, whatever else is left there."""
    piece = THESIS.piece({"cpu": cpu, "memory": memory})
    free = THESIS.free({name: times * amount for name, amount in piece.items()})
    assert all(free[name] >= times * amount for name, amount in piece.items())
    assert piece["cpu"] >= cpu
    assert piece["memory"] >= memory


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ({"max_percent": {"cpu": 0}}, "max_percent of cpu"),
        ({"max_percent": {"cpu": 50}, "min_free": {"cpu": "much"}}, "much"),
        ({"max_percent": {}, "ratios": [{"resource": "cpu", "most": "1", "per": "cpu", "amount": "1"}]}, "ratio"),
        (
            {
                "max_percent": {"cpu": 50},
                "ratios": [
                    {"resource": "cpu", "most": "1", "per": "memory", "amount": "4G"},
                    {"resource": "memory", "most": "1G", "per": "cpu", "amount": "1"},
                ],
            },
            "contradict",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(spoiled: dict[str, object], said: str) -> None:
    """Thresholds, amounts and ratios that no room could meet are an error before anything is planned."""
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(spoiled, UsableResources)
