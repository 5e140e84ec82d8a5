"""Scripted engines for whole studies: every start is counted, faults can be given per start."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine_adapter.clock import VirtualClock
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.scripted import Fault, LinearStep, ScriptedEngine
from engine_adapter.seam import Engine
from engine_adapter.vllm_launch import VllmLaunch

DEFAULT = Knobs(2048, 128)
LAUNCH = VllmLaunch("scripted-model")


@dataclass
class ScriptedMaker:
    """`faults(start number) -> faults of that engine`; `started` holds every engine made."""

    clock: VirtualClock
    faults: Callable[[int], tuple[Fault, ...]] = lambda start: ()
    live_knobs: bool = True
    engine_class: type[ScriptedEngine] = ScriptedEngine
    # Fast enough that at its capacity long prompts hold up more than 1 % of the gaps.
    step_cost: Callable[[int, int, int], int] = field(
        default_factory=lambda: LinearStep(10_000_000, 350_000, 300_000, 30.0))
    started: list[ScriptedEngine] = field(default_factory=list)

    def capacity(self) -> Engine:
        return self._make(DEFAULT)

    def with_knobs(self, knobs: Knobs) -> Engine:
        return self._make(knobs)

    def from_config(self, path: Path) -> Engine:
        config: dict[str, Any] = yaml.safe_load(path.read_text())
        return self._make(Knobs(config["max-num-batched-tokens"], config["max-num-seqs"],
                                config.get("long-prefill-token-threshold", 0),
                                config.get("long-prefill-token-threshold-adaptive", False)))

    def config_text(self, knobs: Knobs) -> str:
        return str(yaml.safe_dump(LAUNCH.serve_config(knobs)))

    def serve_command(self, knobs: Knobs) -> str:
        return LAUNCH.serve_command(knobs)

    def _make(self, knobs: Knobs) -> Engine:
        engine = self.engine_class(
            self.clock, knobs=knobs, limits=KnobLimits(max(2048, knobs.token_budget), 128, 8192),
            step_cost=self.step_cost, faults=self.faults(len(self.started)), live_knobs=self.live_knobs)
        self.started.append(engine)
        return engine
