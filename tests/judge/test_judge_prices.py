"""Prices by hand."""

import math

import pytest

from strop.errors import ConfigError, InputError
from strop.judge.prices import Price

PRICE = Price(2.0, 10.0, cached_input=0.5)


@pytest.mark.parametrize(
    ("tokens", "money"),
    [((1_000_000, 0, 0), 2.0), ((0, 0, 1_000_000), 10.0), ((1_000_000, 1_000_000, 0), 0.5), ((0, 0, 0), 0.0)],
)
def test_a_price_is_money_per_million_tokens(tokens: tuple[int, int, int], money: float) -> None:
    assert PRICE.of(*tokens) == pytest.approx(money)
    full = Price(2.0, 10.0).of(*tokens)
    assert full == pytest.approx(money if tokens[1] == 0 else 2.0)


def test_a_wrong_price_is_refused() -> None:
    for wrong in (-1.0, math.nan, math.inf):
        for price in ((wrong, 1.0), (1.0, wrong), (1.0, 1.0, wrong)):
            with pytest.raises(ConfigError, match="price"):
                Price(*price)
    with pytest.raises(InputError):
        PRICE.of(1, 2, 0)
