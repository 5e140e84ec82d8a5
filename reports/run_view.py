"""Single runs as the reports see them: figures, health, set-up and the distribution of the gaps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import Run, Validity, load_head, load_run, summarise
from reports.client_health import client_facts, stamped_by_kernel
from reports.evidence import sketch
from reports.quantities import canonical, capitalised
from reports.run_failures import Failures, failure_sentence, failures_of, first_errors
from reports.run_load import held_back, load_words, sending_rule
from reports.server_counters import server_delta, server_facts
from reports.simulated import METHOD, Simulation, simulated_run
from reports.survival import Survival
from reports.token_counts import COUNTED, token_facts
from reports.tolerant import mapping, mappings, number, numbers, text, texts

_SETUP_ORDER = ("knobs", "workload", "rate_rps", "max_concurrency", "stages", "workers", "burstiness", "seed",
                "engine", "token_count_source")
_NOT_SETUP = ("salt", "label", "date", "start_seconds", "token_count_sources", "warnings", "server_metrics",
              "prefix_cache")
"""They differ between any two runs and change nothing that is measured, or stand elsewhere."""
_NO_FIGURES = ("schema_version", "seed", "burstiness", "max_concurrency", "client_workers")
_DELIVERY = {"p50": "median_delivery_delay_ms", "p99": "p99_delivery_delay_ms",
             "max": "max_delivery_delay_ms"}


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. `figures` are in the unit of their name; `setup` is flat and in reading order."""

    name: str
    path: str
    validity: Validity
    failure: str
    outcomes: Mapping[str, int]
    figures: Mapping[str, float | None]
    setup: Mapping[str, str]
    rate_rps: float | None
    requests: int
    gaps: Survival
    unsustainable: tuple[str, ...]
    """Why the engine could not keep up with the load; empty where it could or nobody can say."""
    load: str
    """The load in words that end a sentence; empty where the run does not say."""
    failures: tuple[Failures, ...]
    warnings: tuple[str, ...]
    """What was said before the run: what its figures lack, and who must know it."""
    held_back: str
    """What a concurrency cap did to the arrivals; empty where it did nothing."""
    tokens: Mapping[str, str]
    """Tokens asked for and counted, by name in words; so are the two below."""
    client: Mapping[str, str]
    server: Mapping[str, str]
    counters: Mapping[str, Any]
    """The server's own counters, as the run has them."""
    stages: tuple[Mapping[str, Any], ...]
    """Figures of each stage of the load, as the run has them; empty without stages."""
    tenants: Mapping[str, Any]
    """Figures of each tenant's requests, as the run has them; empty without tenants."""
    rules: tuple[str, ...]
    """How this run was made, where runs differ: one sentence each."""
    simulation: Simulation | None
    """What was simulated; None where an engine was measured."""

    @property
    def completed(self) -> int:
        """Measured requests that succeeded."""
        return self.outcomes.get("ok", 0)

    @property
    def failed(self) -> int:
        """Measured requests that did not succeed, whatever the reason."""
        return sum(self.outcomes.values()) - self.completed

    @property
    def failed_sentence(self) -> str:
        """How many requests did not succeed, and why; empty where all did."""
        return failure_sentence(self.failures, self.figures.get("error_rate"))

    @property
    def first_errors(self) -> tuple[str, ...]:
        """What the first failure of each kind said, unless a reason of invalidity quotes it."""
        return first_errors([each for each in self.failures if each.first_error
                             and not any(why.endswith(each.first_error) for why in self.validity.reasons)])

    @property
    def notes(self) -> tuple[str, ...]:
        """What does not make the run invalid. A note that only repeats a failure is left out."""
        quoted = tuple(each.first_error for each in self.failures if each.first_error)
        told = [note for note in self.validity.notes if not (quoted and note.endswith(quoted))]
        return (*told, self.held_back) if self.held_back else tuple(told)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "path": self.path,
            "simulated": None if self.simulation is None else self.simulation.as_dict(),
            "valid": self.validity.valid,
            "reasons": list(self.validity.reasons),
            "notes": list(self.validity.notes),
            "engine_failure": self.failure or None,
            "outcomes": dict(self.outcomes),
            "failures": [failures.as_dict() for failures in self.failures],
            "load": self.load or None,
            "warnings": list(self.warnings),
            "setup": dict(self.setup),
            "figures": dict(self.figures),
            "unsustainable": list(self.unsustainable),
            "tokens": dict(self.tokens),
            "client": dict(self.client),
            "server_metrics": dict(self.counters) or None,
            "stages": [dict(stage) for stage in self.stages],
            **({"tenants": dict(self.tenants)} if self.tenants else {}),
            "gaps": self.gaps.as_dict(),
        }


def view_run(run: Run, *, path: str = "", summary: Mapping[str, Any] | None = None) -> RunView:
    """The view of a run. `summary` is `Summary.as_dict()`, with `stages` where the load had stages; without
    one the figures are computed without deadlines, so without fluidity, and of no stage. The name is
    the run's label, else the last part of its path."""
    told = summary or summarise(run).as_dict()
    figures = {canonical(name): value for name, value in numbers(told).items() if name not in _NO_FIGURES}
    simulation, tokens = simulated_run(run.meta), token_facts(run)
    if simulation is not None:
        tokens.pop(COUNTED, None)  # nobody counted
    return RunView(
        name=text(run.meta.get("label")) or Path(path).name or "run",
        path=path,
        validity=_printable(run.validity),
        failure=text(str(run.engine_failure or "")),
        outcomes=run.outcome_counts(),
        figures={name: value for name, value in figures.items() if value is not None},
        setup=_setup(run.meta, simulation),
        rate_rps=number(run.rate_rps),
        requests=int(run.measured.sum()),
        gaps=sketch(run),
        unsustainable=texts(told.get("sustainable_reasons")) if told.get("sustainable") is False else (),
        load=load_words(run),
        failures=failures_of(run),
        warnings=texts(run.meta.get("warnings")),
        held_back=held_back(run),
        tokens=tokens,
        client={} if simulation else client_facts(
            run, {stat: figures.get(key) for stat, key in _DELIVERY.items()}),
        server=server_facts(run),
        counters=server_delta(run),
        stages=tuple(mappings(told.get("stages"))),
        tenants=mapping(told.get("tenants")),
        rules=(sending_rule(run), *stamped_by_kernel(run), *((METHOD,) if simulation else ())),
        simulation=simulation,
    )


def _printable(validity: Validity) -> Validity:
    """Without control characters: a reason may quote a server."""
    return Validity(validity.valid, tuple(map(text, validity.reasons)), tuple(map(text, validity.notes)))


def load_view(path: Path) -> RunView:
    """The view of a run directory. Raises EvidenceError when it is incomplete."""
    return view_run(load_run(path), path=str(path), summary=mapping(load_head(path).get("summary")))


def distinct_names(views: Sequence[RunView]) -> list[str]:
    """The views' names; where two are equal they are numbered in order."""
    names = [view.name for view in views]
    return [
        f"{name} ({position})" if names.count(name) > 1 else name
        for position, name in enumerate(names, start=1)
    ]


def setup_rows(views: Sequence[RunView]) -> tuple[list[tuple[str, ...]], list[tuple[str, str]]]:
    """What differs in the set-up, one row a setting with each run's value, and what is the same."""
    names = dict.fromkeys(name for view in views for name in view.setup)
    differing, same = [], []
    for name in names:
        values = tuple(view.setup.get(name, "") for view in views)
        if len(set(values)) > 1:
            differing.append((name, *values))
        else:
            same.append((name, values[0]))
    return differing, same


def _setup(meta: Mapping[str, Any], simulation: Simulation | None) -> dict[str, str]:
    made = {"Figures": "measured"} if simulation is None else {"Figures": "simulated", **simulation.facts()}
    before = mapping(mapping(meta.get("server_metrics")).get("before"))
    short = {
        "stages": [text(stage.get("name")) for stage in mappings(meta.get("stages"))],
        "workers": len(mappings(meta.get("workers"))) or None,
        "server_cache": mapping(before.get("cache_config")),
    }
    engine = mapping(meta.get("engine"))
    # What was simulated stands at the head, in words.
    plain = {name: value for name, value in mapping(engine.get("fingerprint")).items() if name != "simulated"}
    told = {**meta, **short, **({"engine": {**engine, "fingerprint": plain}} if simulation else {})}
    ordered = {name: told[name] for name in (*_SETUP_ORDER, *told) if name in told}
    kept = _kept(ordered)
    flat = _flat({name: _kept(part) if isinstance(part, dict) else part for name, part in kept.items()})
    return made | dict(flat)


def _kept(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _NOT_SETUP}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as readable names and texts, in their order; what is empty is left out."""
    for name, value in values.items():
        label = f"{prefix} {name}".strip().replace("_", " ")
        if isinstance(value, dict):
            yield from _flat(value, label)
        elif isinstance(value, list):
            if value:
                yield capitalised(label), text(", ".join(str(item) for item in value))
        elif value is not None and value != "":
            yield capitalised(label), text({"True": "yes", "False": "no"}.get(str(value), str(value)))
