"""How much a student may cost, as a value: one metric and one amount."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, get_args

from understudy._util.quantities import format_count, format_time, parse_count, parse_share

Metric = Literal["params", "mult_adds", "bytes", "ratio", "scale", "knob", "latency", "milliseconds"]
METRICS: tuple[Metric, ...] = ("params", "mult_adds", "bytes", "ratio", "scale", "knob")
UNITS = {
    "params": "parameters",
    "mult_adds": "mult-adds",
    "bytes": "bytes",
}
TIMES = ("latency", "milliseconds")
_COUNTS = ("params", "mult_adds", "bytes")
_TIMES = {"ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1e3}  # of a millisecond; "s" last: the others end in it


class BudgetError(ValueError):
    """The budget lies below `lowest`, the cost of the cheapest student; of a time it is in nanoseconds.

    >>> import understudy as us
    >>> try:
    ...     us.plan(us.create_model("wrn_10_1"), "low_rank", params=1)
    ... except us.BudgetError as error:
    ...     print(error.lowest > 1)
    True
    """

    def __init__(self, message: str, lowest: int) -> None:
        super().__init__(message)
        self.lowest = lowest


@dataclasses.dataclass(frozen=True)
class Budget:
    """At most so many `params`, `mult_adds` or `bytes`, a `ratio` of the parameters, one `scale` or `knob`.

    Bytes are those of the file that `save` writes. Of time, which is modelled for students, it is a share,
    `latency`, of what the network takes as it is, or `milliseconds`. Amounts may be given as people write
    them, "17.6M", "1MB", "30%" or, for a latency, "5ms"; they are kept as numbers.

    >>> Budget("params", "17.6M")
    Budget(metric='params', amount=17600000)
    """

    metric: Metric
    amount: int | float

    def __post_init__(self) -> None:
        legal = get_args(Metric)
        if self.metric not in legal:
            raise ValueError(f"no metric {self.metric!r}; a budget is one of {', '.join(legal)}")
        object.__setattr__(self, "amount", _amount(self.metric, self.amount))

    @classmethod
    def of(
        cls,
        *,
        params: int | float | str | None = None,
        mult_adds: int | float | str | None = None,
        bytes: int | float | str | None = None,
        ratio: float | str | None = None,
        scale: float | str | None = None,
        knob: int | str | None = None,
        latency: float | str | None = None,
        legal: Sequence[str] | None = None,
    ) -> Budget:
        """The one of these that is given; a ValueError, which names the `legal` ones, if none or several."""
        given = {
            "params": params,
            "mult_adds": mult_adds,
            "bytes": bytes,
            "ratio": ratio,
            "scale": scale,
            "knob": knob,
            "latency": latency,
        }
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            got = " and ".join(named) or "none"
            *others, last = legal or given
            raise ValueError(f"give exactly one of {', '.join(others)} and {last}; got {got}")
        metric, amount = named[0], given[named[0]]
        if metric == "latency" and isinstance(amount, str):
            for unit, size in _TIMES.items():
                if amount.rstrip().endswith(unit):
                    return cls("milliseconds", size * parse_share("latency", amount.rstrip()[: -len(unit)]))
        return cls(metric, amount)  # type: ignore[arg-type]  # checked by __post_init__

    def __str__(self) -> str:
        if self.metric in _COUNTS:
            return f"at most {self.amount:,} {UNITS[self.metric]}"
        if self.metric == "ratio":
            return f"at most {100 * self.amount:.4g} % of the parameters"
        if self.metric == "latency":
            return f"at most {100 * self.amount:.4g} % of the time, modelled"
        if self.metric == "milliseconds":
            return f"at most {format_time(1e6 * self.amount)}, modelled"
        return f"{self.metric} {self.amount:g}"

    @property
    def label(self) -> str:
        """In few characters: `1.2M`, `0.53G mult-adds`, `4M bytes`, `30%`, `scale 0.4`, `knob 8`."""
        if self.metric == "params":
            return short_count(int(self.amount))
        if self.metric in _COUNTS:
            return f"{short_count(int(self.amount))} {UNITS[self.metric]}"
        if self.metric in TIMES:
            return str(self).removesuffix(", modelled")
        return f"{100 * self.amount:.4g}%" if self.metric == "ratio" else str(self)


def short_count(count: int) -> str:
    """A count without zeros that say nothing: 1200000 → `1.2M`; all its digits where it is not so round."""
    text = format_count(count)
    head, unit = (text[:-1], text[-1]) if text[-1].isalpha() else (text, "")
    short = (head.rstrip("0").rstrip(".") if "." in head else head) + unit
    return short if parse_count(short) == count else str(count)


def told(metric: str, amount: int, *, short: bool = False) -> str:
    """A cost with its unit; a time, which is modelled, in one that can be read."""
    if metric == "nanoseconds":
        return f"{format_time(amount)}, modelled"
    return f"{format_count(amount) if short else f'{amount:,}'} {UNITS[metric]}"


def _amount(metric: Metric, amount: int | float | str) -> int | float:
    """The amount as a number, or a ValueError that says what is legal."""
    if metric in _COUNTS:
        is_text_of_bytes = metric == "bytes" and isinstance(amount, str)
        return parse_count(str(amount).rstrip().removesuffix("B") if is_text_of_bytes else amount)
    if metric in ("ratio", "latency"):
        share = parse_share(metric, amount)
        if not 0 < share <= 1:
            means = {"ratio": "parameters", "latency": 'time; "5ms" is a time by itself'}[metric]
            raise ValueError(f"{metric} {amount!r} is not in 0..1: it is a share of the network's {means}")
        return share
    if metric == "milliseconds":
        time = parse_share("milliseconds", amount)
        if not time > 0:
            raise ValueError(f"{amount!r} milliseconds is not above 0")
        return time
    if metric == "scale":
        scale = parse_share("scale", amount)
        if not 0 <= scale <= 1:
            raise ValueError(f"scale {amount!r} is not in 0..1")
        return scale
    knob = int(amount) if isinstance(amount, str) and amount.strip().isdigit() else amount
    if isinstance(knob, bool) or not isinstance(knob, int) or knob < 1:
        raise ValueError(f"knob {amount!r} is not a whole number of at least 1")
    return knob
