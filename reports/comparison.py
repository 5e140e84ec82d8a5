"""The recommended setting against the engine's default: the figures, and what was traded in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reports.quantities import NONE, Quantity, change, digits, quantity
from reports.simulated import simulated_study
from reports.study import Figures, Setting, Study, runs_of

COMPARED = (
    "capacity_rps",
    "p99_tbt_ms",
    "max_tbt_ms",
    "fluidity_p10",
    "fluidity_pooled",
    "median_ttft_ms",
    "p90_ttft_ms",
    "p99_ttft_ms",
    "output_throughput",
    "request_throughput",
    "completed",
    "failed",
)
ABOUT_THE_SAME = 0.03
"""Smaller differences, relative or of fractions, are called neither gain nor cost. A convention of
these reports, not a test: how far repeated runs differ is for the confirmation to say."""
_SPOKEN = (
    "capacity_rps",
    "p99_tbt_ms",
    "max_tbt_ms",
    "fluidity_p10",
    "median_ttft_ms",
    "p90_ttft_ms",
    "p99_ttft_ms",
    "output_throughput",
)
_FRACTIONS = {"fluidity_p10", "fluidity_pooled"}

Effect = Literal["better", "worse", "same", ""]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of the default and of the recommendation; `effect` is empty when it cannot be judged."""

    quantity: Quantity
    default: float | None
    recommended: float | None
    effect: Effect

    @property
    def change(self) -> str:
        """The relative change in percent or as a factor, of fractions the difference; empty where
        none can be said."""
        if self.quantity.key not in _FRACTIONS:
            return change(self.default, self.recommended)
        if self.default is None or self.recommended is None:
            return ""
        # A fluidity of 0.02 against 0.01 is no doubling of anything.
        moved = round(self.recommended - self.default, 3)
        return f"{'+' if moved > 0 else ''}{digits(moved)}" if moved else ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All compared figures. `basis` says which runs they come from, `caution` what forbids trust."""

    differences: tuple[Difference, ...]
    basis: str
    caution: str
    default_failed_down_to_rps: float | None
    """The lowest rate at which the default was judged where it held the SLO at none; else None."""
    refuted: bool
    """The confirmation did not hold the recommendation's SLO."""

    def of(self, key: str) -> Difference:
        """The difference in one figure; raises KeyError for a name that is not compared."""
        for difference in self.differences:
            if difference.quantity.key == key:
                return difference
        raise KeyError(key)


def compare(study: Study) -> Comparison | None:
    """Default and recommendation under like conditions; None unless both have figures.

    Confirmed figures are compared with confirmed ones, else search figures with search
    figures. A capacity that was not confirmed is the search's, unless the confirmation refuted it.
    """
    if study.default is None or study.recommended is None:
        return None
    default, recommended, basis = _alike(study)
    if default is None or recommended is None:
        return None
    differences = []
    for key in COMPARED:
        old = _value(key, default, study.default)
        new = _value(key, recommended, study.recommended)
        named = quantity(key)
        differences.append(Difference(named, old, new, _effect(named, old, new)))
    caution = ""
    if default.rate_rps != recommended.rate_rps:
        caution = (
            f"The two runs offered different loads ({quantity('capacity_rps').show(default.rate_rps)} to "
            f"the default, {quantity('capacity_rps').show(recommended.rate_rps)} to the recommendation): "
            f"their latencies and throughputs are not like for like."
        )
    for name, figures, setting in (("default", default, study.default),
                                   ("recommendation", recommended, study.recommended)):
        if figures is setting.confirmed and figures.capacity_rps is None and _searched_capacity(setting):
            basis += f" The capacity of the {name} is the search's."
    confirmed = study.recommended.confirmed
    return Comparison(
        tuple(differences),
        basis,
        caution,
        default_failed_down_to_rps=_failed_down_to(runs_of(study, study.default)),
        refuted=confirmed is not None and confirmed.holds is False,
    )


def same_setting(study: Study) -> bool:
    """Whether the recommendation is the default itself."""
    return (
        study.default is not None
        and study.recommended is not None
        and study.default.knobs == study.recommended.knobs
    )


def traded(comparison: Comparison) -> tuple[str, ...]:
    """What the recommendation gains, costs and leaves alone: one sentence each, figures included."""
    spoken = [comparison.of(key) for key in _SPOKEN]
    sentences = []
    capacity, lowest = comparison.of("capacity_rps"), comparison.default_failed_down_to_rps
    if lowest is not None and capacity.recommended is not None:
        named = capacity.quantity
        sentences.append(f"Capacity is {named.show(capacity.recommended)}; the default held the SLO at no "
                         f"rate down to {named.show(lowest)}, the lowest that was tried.")
    for effect, opening in (("better", "Gained"), ("worse", "Paid")):
        parts = [_spoken(item) for item in spoken if item.effect == effect]
        if parts:
            sentences.append(f"{opening}: {'; '.join(parts)}.")
    same = [item.quantity.label for item in spoken if item.effect == "same"]
    if same:
        sentences.append(
            f"Within {ABOUT_THE_SAME:.0%} of the default: {', '.join(same)}.".replace("%", "\u00a0%")
        )
    if not any(item.effect == "worse" for item in spoken) and sentences:
        sentences.append("No compared figure got worse.")
    return tuple(sentences)


def capacity_words(comparison: Comparison) -> tuple[str, str]:
    """What stands for a capacity that is missing: for the default and for the recommendation."""
    lowest = comparison.default_failed_down_to_rps
    default = NONE if lowest is None else f"none down to {digits(lowest)}"
    return default, "not confirmed" if comparison.refuted else NONE


def change_text(item: Difference) -> str:
    """The change of one figure and whether it is for the better, in words."""
    if item.default is not None and item.default == item.recommended:
        return "no change"
    if item.effect == "same":
        return "about the same"
    return f"{item.change} {item.effect}".strip() or NONE


def optimism(setting: Setting) -> str:
    """How much better the search figures looked than the confirmed ones; empty unless both exist."""
    if setting.search is None or setting.confirmed is None:
        return ""
    parts = []
    for key in ("capacity_rps", "p99_tbt_ms", "fluidity_p10"):
        named = quantity(key)
        searched, confirmed = _own(key, setting.search), _own(key, setting.confirmed)
        if searched is not None and confirmed is not None:
            parts.append(f"{named.label} {named.show(searched)}, then {named.show(confirmed)}")
    rates = (setting.search.rate_rps, setting.confirmed.rate_rps)
    at = ""
    if rates[0] != rates[1] and None not in rates:
        rate = quantity("capacity_rps")
        at = f" The first latencies are those at {rate.show(rates[0])}, the others at {rate.show(rates[1])}."
    return f"First in the search, then confirmed: {'; '.join(parts)}.{at}" if parts else ""


def _alike(study: Study) -> tuple[Figures | None, Figures | None, str]:
    default, recommended = study.default, study.recommended
    assert default is not None, "compare has looked"
    assert recommended is not None, "compare has looked"
    if default.confirmed and recommended.confirmed:
        return default.confirmed, recommended.confirmed, f"{_how_confirmed(study)} (confirmation)."
    if default.search and recommended.search:
        return (
            default.search,
            recommended.search,
            "Figures of the search, not confirmed: the best of many trials looks better "
            "than it is.",
        )
    basis = "One of the two is confirmed, the other comes from the search."
    return default.best, recommended.best, basis


def _how_confirmed(study: Study) -> str:
    if simulated_study(study.environment):
        return "Simulated on new arrivals"
    # A server that ran already was not started anew for the proof.
    return "Measured in freshly started engines" if study.environment.get("fresh_engines", True) else (
        "Measured on the server that was searched, on new arrivals")


def _failed_down_to(runs: Sequence[Figures]) -> float | None:
    if any(run.holds for run in runs):
        return None
    missed = [run.rate_rps for run in runs if run.missed and run.rate_rps is not None]
    return min(missed, default=None)


def _own(key: str, figures: Figures) -> float | None:
    return figures.capacity_rps if key == "capacity_rps" else figures.values.get(key)


def _value(key: str, figures: Figures, setting: Setting) -> float | None:
    value = _own(key, figures)
    return _searched_capacity(setting) if value is None and key == "capacity_rps" else value


def _searched_capacity(setting: Setting) -> float | None:
    # The search's capacity stands unless a fresh engine failed at that rate or a lower one.
    found, confirmed = setting.search.capacity_rps if setting.search else None, setting.confirmed
    if found is None or confirmed is None or confirmed.holds is not False:
        return found
    return found if confirmed.rate_rps is not None and confirmed.rate_rps > found else None


def _effect(named: Quantity, old: float | None, new: float | None) -> Effect:
    if old is None or new is None or not named.better:
        return ""
    scale = 1.0 if named.key in _FRACTIONS else max(abs(old), abs(new))
    if abs(new - old) <= ABOUT_THE_SAME * scale:
        return "same"
    return "better" if (new > old) == (named.better == "higher") else "worse"


def _spoken(item: Difference) -> str:
    named = item.quantity
    moved = f" ({item.change})" if item.change else ""
    return f"{named.label} {named.show(item.recommended)} instead of {named.show(item.default)}{moved}"
