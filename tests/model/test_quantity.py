"""Quantities are read exactly, or refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import SCALES, quantities

from kinema_core.model import quantity
from kinema_core.model.quantity import LIMIT, QuantityError, in_words, parse_amount, parse_bytes, parse_cpu


@pytest.mark.parametrize("suffix", sorted(SCALES))
def test_every_suffix_has_its_own_factor(suffix: str) -> None:
    """Each of Kubernetes' suffixes scales by its power of ten or of two, rounded up to whole units."""
    exact = 3 * SCALES[suffix]
    assert parse_bytes(f"3{suffix}") == -(-exact.numerator // exact.denominator)


@pytest.mark.parametrize(
    ("text", "millicores"),
    [
        ("250m", 250),
        ("1", 1000),
        ("0", 0),
        ("0.5", 500),
        (".5", 500),
        ("1.", 1000),
        ("+2", 2000),
        ("-0", 0),
        ("1e-1", 100),
        ("1E-1", 100),
        ("2e0", 2000),
        ("1e+1", 10_000),
        ("100n", 1),
        ("100u", 1),
        ("1001u", 2),
        ("0.0001", 1),
        ("1e-400", 1),
        ("0e999999999", 0),
        ("2k", 2_000_000),
    ],
)
def test_cpu_is_counted_in_millicores_and_rounds_up(text: str, millicores: int) -> None:
    """CPU is a whole number of millicores, never less than what was written."""
    assert parse_cpu(text) == millicores


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("64Mi", 67_108_864),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("128974848", 128_974_848),
        ("129e6", 129_000_000),
        ("1.5Gi", 1_610_612_736),
        ("128974848000m", 128_974_848),
        ("1m", 1),
        ("9223372036854775807", LIMIT),
        ("7.999Ei", 9_222_219_115_350_168_962),
    ],
)
def test_bytes_are_exact_and_round_up(text: str, amount: int) -> None:
    """Bytes are exact integers up to 2^63 − 1."""
    assert parse_bytes(text) == amount


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "NaN",
        "nan",
        "inf",
        "Infinity",
        "-1",
        "-0.1",
        "1_000",
        "1,000",
        "\u0661",  # the digit one in Arabic
        "\uff11",  # a full-width one
        "²",
        "12e6Mi",
        "12Mi6",
        "1e",
        "1e+",
        "e3",
        "E",
        "Mi",
        ".",
        "..5",
        "1..5",
        "1.5.5",
        "0x10",
        "1 Gi",
        " 1",
        "1 ",
        "1\n",
        "1K",
        "1mi",
        "1KI",
        "1b",
        "1ee3",
        "--1",
        "1e3.5",
        "9223372036854775808",
        "8Ei",
        "1e30",
        "1e999999999",
        "1" * 65,
    ],
)
def test_what_is_no_quantity_is_refused_by_name(text: str) -> None:
    """Whatever is not of the grammar, negative or above 2^63 − 1 is refused, and the error repeats the text."""
    with pytest.raises(QuantityError, match="quantity") as caught:
        parse_bytes(text)
    assert caught.value.text == text
    assert text.strip()[:5] in str(caught.value) or not text.isascii() or "\n" in text


def test_a_number_that_is_no_text_is_refused() -> None:
    """A float never slips in as an amount."""
    with pytest.raises(QuantityError, match="not a text"):
        parse_bytes(1.5)  # type: ignore[arg-type]  # that is what the test is about


def test_cpu_overflows_at_millicores() -> None:
    """The bound holds for the unit that is counted in: 2^63 cores fit in nobody's millicores."""
    with pytest.raises(QuantityError, match="too large"):
        parse_cpu("9223372036854775807")


def test_the_resource_decides_on_the_unit() -> None:
    """Only `cpu` counts in thousandths; memory, devices and pods count whole units."""
    assert parse_amount("cpu", "1") == 1000
    assert parse_amount("memory", "1Ki") == 1024
    assert parse_amount("nvidia.com/gpu", "2") == 2
    assert parse_amount("nvidia.com/gpu", "1500m") == 2


@given(quantities())
def test_parsing_is_the_exact_value_rounded_up(case: tuple[str, Fraction]) -> None:
    """For any text of the grammar the amount is the ceiling of its exact value, or it is refused as too large."""
    text, exact = case
    ceiling = -(-exact.numerator // exact.denominator)
    if ceiling > LIMIT:
        with pytest.raises(QuantityError):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == ceiling


@given(st.integers(0, LIMIT))
def test_whole_numbers_survive_a_round_trip(amount: int) -> None:
    """An amount written in digits is read back as itself, and as millis of itself."""
    assert parse_bytes(str(amount)) == amount
    assert parse_cpu(f"{amount}m") == amount


@given(quantities(), quantities())
def test_parsing_keeps_the_order(a: tuple[str, Fraction], b: tuple[str, Fraction]) -> None:
    """More is never read as less."""
    (less, low), (more, high) = sorted((a, b), key=lambda case: case[1])
    if high <= LIMIT:
        assert parse_bytes(less) <= parse_bytes(more)
        assert low <= high


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_a_refusal(text: str) -> None:
    """No text makes the parser fail in any other way."""
    try:
        amount = parse_bytes(text)
    except QuantityError:
        return
    assert 0 <= amount <= LIMIT
    assert text.isascii()


@given(st.sampled_from(["cpu", "memory", "ephemeral-storage", "pods", "nvidia.com/gpu"]), st.integers(0, LIMIT // 1000))
def test_amounts_in_words_are_exact(resource: str, amount: int) -> None:
    """What people read, Kubernetes would read as the same amount."""
    assert parse_amount(resource, in_words(resource, amount)) == amount


def test_amounts_in_words_are_short() -> None:
    """The largest unit that leaves no fraction is taken."""
    amounts = {"cpu": 3920, "memory": 13 * 2**30, "ephemeral-storage": 512 * 2**20, "pods": 110}
    assert [in_words(name, amount) for name, amount in amounts.items()] == ["3920m", "13Gi", "512Mi", "110"]


def test_a_text_that_a_cluster_repeats_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of nodes of one machine type say the same; a refused text is looked at again."""
    taken, exact = list[str](), quantity._exact

    def take(text: str) -> Fraction:
        taken.append(text)
        return exact(text)

    monkeypatch.setattr(quantity, "_exact", take)
    assert [parse_cpu("7654321m") for _ in range(3)] == [7654321] * 3
    for _ in range(2):
        with pytest.raises(QuantityError):
            parse_cpu("7654321mm")
    assert taken == ["7654321m", "7654321mm", "7654321mm"]
