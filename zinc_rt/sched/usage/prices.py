"""Prices per token, and the cost of a ledger's counters.

Costs are exact decimal numbers. A tenant pays for prompt tokens, computed or cached, and for delivered
tokens; recomputed and discarded tokens are a cost of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

import yaml

from zinc_rt.host.errors import InputError
from zinc_rt.sched.usage.balance import Sums

VERSION = 1
COUNTERS = {  # a price, and the counter that it applies to
    "prompt": "prompt_tokens_computed",
    "cached": "prompt_tokens_cached",
    "delivered": "tokens_delivered",
}
OTHERS = "*"  # the models that are not named
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices in `currency` per million tokens: model -> a key of COUNTERS -> price."""

    currency: str
    models: Mapping[str, Mapping[str, Decimal]]

    def compute_cost(self, groups: Iterable[tuple[str, Sums]]) -> Decimal | None:
        """Return the cost of (model, counters), None if a model with tokens has no price."""
        total = Decimal(0)
        for model, counters in groups:
            counts = {name: counters.get(counter, 0) for name, counter in COUNTERS.items()}
            prices = self.models.get(model, self.models.get(OTHERS))
            if prices is None:
                if any(counts.values()):
                    return None
                continue
            total += sum((prices[name] * count for name, count in counts.items()), Decimal(0))
        return total / MILLION


def read_prices(path: Path) -> PriceList:
    """Read a price list. Raises InputError for an unreadable or malformed file, which names the value."""
    try:
        data = yaml.load(path.read_text(), yaml.BaseLoader)  # values stay text: a price has all its digits
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise InputError(f"{path}: cannot read the prices: {reason}") from None
    if not isinstance(data, dict) or data.get("version") != str(VERSION):
        raise InputError(f"{path}: expected version: {VERSION}", next="docs/ledger.md has an example")
    if unknown := sorted(set(data) - {"version", "currency", "models"}):
        raise InputError(f"{path}: unknown field {unknown[0]!r}; expected version, currency, models")
    models = data.get("models")
    if not isinstance(models, dict) or not models:
        raise InputError(f"{path}: models: expected a price for each model")
    return PriceList(
        str(data.get("currency", "")),
        {str(model): _read_model(path, str(model), prices) for model, prices in models.items()},
    )


def _read_model(path: Path, model: str, prices: object) -> dict[str, Decimal]:
    if not isinstance(prices, dict) or set(prices) != set(COUNTERS):
        raise InputError(f"{path}: models.{model}: expected {', '.join(COUNTERS)} (per million tokens)")
    result = {}
    for name in COUNTERS:
        try:
            result[name] = Decimal(str(prices[name]))
        except InvalidOperation:
            result[name] = Decimal("NaN")
        if not result[name].is_finite() or result[name] < 0:
            raise InputError(f"{path}: models.{model}.{name} is {prices[name]!r}, expected 0 or more")
    return result


def format_cost(cost: Decimal | None) -> str:
    """Return a cost in positional notation with at least two decimals, "" for None."""
    if cost is None:
        return ""
    places = min(-2, int(cost.normalize().as_tuple().exponent))
    return f"{cost.quantize(Decimal(1).scaleb(places)):f}"
