"""Runs and studies that nobody measured: their engine was simulated, and every view of them says so first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from engine_adapter.simulator.info import ENGINE_NAME
from reports.document import Notice
from reports.tolerant import mapping, text

BADGE: Literal["Simulated"] = "Simulated"
METHOD = ("Times of a simulated run are computed, not measured: docs/simulator.md says what is modelled and "
          "what is not.")
_PARTS = ("hardware", "model", "rule", "cost", "errors")
_LABELS = {"hardware": "Hardware", "rule": "Scheduling rule", "cost": "Step cost", "errors": "Known error"}


@dataclass(frozen=True, slots=True)
class Simulation:
    """What stands behind simulated figures; a part that the file does not name is empty."""

    hardware: str
    model: str
    rule: str
    cost: str
    """Where the cost of a step comes from, as a sentence."""
    errors: str
    """How far off its calibration is known to be, as a sentence."""

    def facts(self) -> dict[str, str]:
        """Names and values in reading order, without what is not known; the model is the engine's."""
        known = {label: getattr(self, name) for name, label in _LABELS.items()}
        return {label: value for label, value in known.items() if value}

    def sentence(self) -> str:
        """That nobody measured it, of what it is a simulation, and how far its error is known."""
        of_what = " on ".join(filter(None, (PurePath(self.model).name, self.hardware)))
        named = "; ".join(filter(None, (of_what, f"scheduled by {self.rule}" if self.rule else "",
                                        self.cost.rstrip("."))))
        error = self.errors or ("its error on this load is not known: measure a few runs and calibrate "
                                "before you rely on it")
        return f"no engine was measured. {f'Simulated: {named}. ' if named else ''}{_capital(error)}"

    def as_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return {name: getattr(self, name) for name in _PARTS}


def simulation_of(name: object, fingerprint: object) -> Simulation | None:
    """What is known of a simulated engine by its name and fingerprint, whose `simulated` names the parts;
    None for an engine that ran."""
    told = mapping(mapping(fingerprint).get("simulated"))
    if not told and name != ENGINE_NAME:
        return None
    return Simulation(**{part: text(told.get(part)) for part in _PARTS})


def simulated_run(meta: Mapping[str, Any]) -> Simulation | None:
    """The same of a run, by its `meta`."""
    engine = mapping(meta.get("engine"))
    return simulation_of(engine.get("name"), engine.get("fingerprint"))


def simulated_study(environment: Mapping[str, Any]) -> Simulation | None:
    """The same of a study or of a search for a capacity, by its `environment`."""
    return simulation_of(environment.get("engine"), environment.get("fingerprint"))


def simulated_notice(simulation: Simulation | None, prefix: str = "") -> tuple[Notice, ...]:
    """What a reader must know before the figures; nothing where they were measured."""
    if simulation is None:
        return ()
    sentence = simulation.sentence()
    return (Notice(f"{prefix}{sentence}" if prefix else _capital(sentence), BADGE),)


def marked_status(status: str, simulation: Simulation | None) -> str:
    """A verdict in a few words, marked where it rests on simulated runs."""
    return status if simulation is None else f"{BADGE}: {status[:1].lower()}{status[1:]}"


def shouted(status: str) -> str:
    """The same for a terminal, which has no badge."""
    return status.replace(BADGE, BADGE.upper())


def badge(simulations: Sequence[Simulation | None]) -> str:
    """What the head of a report wears: empty where everything was measured."""
    if not any(simulations):
        return ""
    return BADGE if all(simulations) else "Partly simulated"


def _capital(sentence: str) -> str:
    whole = sentence[:1].upper() + sentence[1:]
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."
