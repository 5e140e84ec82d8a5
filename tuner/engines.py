"""Which engine to start for which purpose."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import yaml

from engine_adapter.clock import Clock, VirtualClock, WallClock
from engine_adapter.embedded import EmbeddedVllm
from engine_adapter.http.engine import NO_LIVE_KNOBS, HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Engine, EngineInfo
from engine_adapter.servers.command_template import CommandTemplate
from engine_adapter.servers.live import LiveServer
from engine_adapter.servers.managed import ManagedCommand, ManagedVllm
from engine_adapter.simulator.info import cost_digest
from engine_adapter.vllm_launch import VllmLaunch
from tuner.simulation import SimulationTarget, known_sheets
from workloads import UsageError


class EngineMaker(Protocol):
    """Makes engines that differ only in their scheduler settings; none is started yet."""

    def capacity(self) -> Engine:
        """One with ceilings high enough for every setting of the search."""
        ...

    def with_knobs(self, knobs: Knobs) -> Engine:
        """One started with exactly these knobs."""
        ...

    def from_config(self, path: Path) -> Engine:
        """One started from a `vllm serve --config` file alone."""
        ...

    def config_text(self, knobs: Knobs) -> str:
        """The content of that file for these knobs."""
        ...

    def serve_command(self, knobs: Knobs) -> str:
        """The same as a command line."""
        ...


class VllmMaker:
    """vLLM engines of one launch, embedded or as servers; each start appends to its own log in
    `log_directory`."""

    def __init__(self, launch: VllmLaunch, log_directory: Path, *, ready_timeout_s: float = 900.0,
                 as_server: bool = False) -> None:
        self._launch, self._logs, self._ready_timeout_s = launch, log_directory, ready_timeout_s
        self._as_server = as_server
        self._made = 0

    def capacity(self) -> Engine:
        return self._make(self._launch)

    def with_knobs(self, knobs: Knobs) -> Engine:
        return self._make(replace(self._launch, knobs=knobs))

    def from_config(self, path: Path) -> Engine:
        return self._make(replace(self._launch, config_file=path.resolve()))

    def config_text(self, knobs: Knobs) -> str:
        config: dict[str, Any] = self._launch.serve_config(knobs)
        text: str = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        return text

    def serve_command(self, knobs: Knobs) -> str:
        return self._launch.serve_command(knobs)

    def _make(self, launch: VllmLaunch) -> Engine:
        self._made += 1
        log_path = _log_path(self._logs, self._made)
        if self._as_server:
            return ManagedVllm(launch, log_path=log_path, start_deadline_s=self._ready_timeout_s)
        return EmbeddedVllm(launch, log_path=log_path, start_deadline_s=self._ready_timeout_s)


class CommandMaker:
    """Servers of a command of the user's; knobs fill its fields.

    `baseline` are the knobs to begin with, None where the command has no field for any.
    """

    def __init__(self, template: CommandTemplate, target: HttpTarget | None, baseline: Knobs | None,
                 log_directory: Path, *, ready_timeout_s: float = 900.0) -> None:
        self._template, self._target, self._baseline = template, target, baseline
        self._logs, self._ready_timeout_s = log_directory, ready_timeout_s
        self._made = 0

    def capacity(self) -> Engine:
        return self._make(self._baseline)

    def with_knobs(self, knobs: Knobs) -> Engine:
        return self._make(knobs)

    def from_config(self, path: Path) -> Engine:
        return self._make(_knobs_in(path))

    def config_text(self, knobs: Knobs) -> str:
        return _settings_text(knobs, None if self._target is None else self._target.model)

    def serve_command(self, knobs: Knobs) -> str:
        return self._template.shown(knobs, model=None if self._target is None else self._target.model)

    def _make(self, knobs: Knobs | None) -> Engine:
        self._made += 1
        return ManagedCommand(
            self._template, target=self._target, knobs=knobs, baseline=self._baseline,
            log_path=_log_path(self._logs, self._made), start_deadline_s=self._ready_timeout_s)


class RemoteMaker:
    """The one server that runs already, again and again: only its live knobs can change, if it has them."""

    def __init__(self, target: HttpTarget, *, control_block: Path | None, probe_timeout_s: float) -> None:
        self._target, self._control_block = target, control_block
        self._probe_timeout_s = probe_timeout_s
        self._model = target.model

    def capacity(self) -> Engine:
        if self._control_block is not None:
            return _LiveWith(self._target, self._control_block, None, self._meet)
        return HttpEngine(self._target, probe_timeout_s=self._probe_timeout_s)

    def with_knobs(self, knobs: Knobs) -> Engine:
        if self._control_block is None:
            raise UsageError(NO_LIVE_KNOBS)
        return _LiveWith(self._target, self._control_block, knobs, self._meet)

    def from_config(self, path: Path) -> Engine:
        return self.with_knobs(_knobs_in(path))

    def config_text(self, knobs: Knobs) -> str:
        return _settings_text(knobs, self._model)

    def serve_command(self, knobs: Knobs) -> str:
        return shlex.join(["vllm", "serve", *([self._model] if self._model else []), *knobs.serve_flags()])

    def _meet(self, info: EngineInfo) -> None:
        self._model = info.model


class _LiveWith(LiveServer):
    """A server that runs already, brought to these knobs, if any, at `start`; `stop` puts back what it
    had. `meet` learns what it is."""

    def __init__(self, target: HttpTarget, control_block: Path, knobs: Knobs | None,
                 meet: Callable[[EngineInfo], None]) -> None:
        super().__init__(target, control_block)
        self._knobs, self._meet = knobs, meet

    async def start(self) -> EngineInfo:
        info = await super().start()
        self._meet(info)
        if self._knobs is None:
            return info
        try:
            return replace(info, knobs=(await self.apply(self._knobs)).knobs)
        except BaseException:
            await self.stop()
            raise


class SimMaker:
    """Engines that are only simulated, on `clock`; `ceiling_budget` as in a launch."""

    def __init__(self, target: SimulationTarget, clock: Clock, *, ceiling_budget: int = 0) -> None:
        self._target, self._clock, self._ceiling_budget = target, clock, ceiling_budget

    def capacity(self) -> Engine:
        return self._target.engine(self._clock, self._target.default_knobs,
                                   ceiling_budget=self._ceiling_budget)

    def with_knobs(self, knobs: Knobs) -> Engine:
        return self._target.engine(self._clock, knobs)

    def from_config(self, path: Path) -> Engine:
        return self.with_knobs(_knobs_in(path))

    def config_text(self, knobs: Knobs) -> str:
        target = self._target
        lines = [f"SIMULATED: {target.model} on {target.hardware}, {target.provenance}.",
                 "No engine was measured: confirm it there with tune bench --config before you rely on it."]
        if target.model in known_sheets()[1]:
            lines.append("The model is named as its sheet is: put its path or hub name there.")
        return "".join(f"# {line}\n" for line in lines) + _settings_text(knobs, target.model)

    def serve_command(self, knobs: Knobs) -> str:
        return shlex.join(["vllm", "serve", self._target.model, *knobs.serve_flags()])


def _settings_text(knobs: Knobs, model: str | None) -> str:
    named = {"model": model} if model else {}
    text: str = yaml.safe_dump(named | knobs.serve_config(), sort_keys=False, allow_unicode=True)
    return text


def _knobs_in(path: Path) -> Knobs:
    return Knobs.from_serve_config(yaml.safe_load(path.read_text(encoding="utf-8")))


def _log_path(directory: Path, number: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"engine-{number}.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSource:
    """Where the engines of a command come from, and how to reach them."""

    kind: Literal["embedded", "vllm", "command", "remote", "sim"]
    launch: VllmLaunch | None = None
    """Of `embedded` and `vllm`."""
    target: HttpTarget | None = None
    """Of `remote`; of `command` where the user says more than the command does."""
    template: CommandTemplate | None = None
    """Of `command`."""
    baseline: Knobs | None = None
    """Of `command`: what fills its fields at first."""
    control_block: Path | None = None
    """Of `remote`: the file of live knobs that the server was started with."""
    simulation: SimulationTarget | None = None
    """Of `sim`."""
    ceiling_budget: int = 0
    """Of `sim`, as in a launch."""
    ready_timeout_s: float = 900.0
    request_timeout_s: float = 120.0

    @property
    def has_logs(self) -> bool:
        """Whether engines are started here, and write a log."""
        return self.kind not in ("remote", "sim")

    @property
    def can_search(self) -> bool:
        """Whether settings of these engines can be changed at all; else only their capacity is found."""
        if self.kind == "command":
            return self.template is not None and {"token_budget", "max_seqs"} <= self.template.knobs
        return self.kind != "remote" or self.control_block is not None

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, for a study: what the launch does not say, without keys and without timeouts."""
        values = {
            "kind": self.kind, "target": None if self.target is None else self.target.as_dict(),
            "command": None if self.template is None else self.template.text,
            "control_block": None if self.control_block is None else str(self.control_block),
            "simulation": None if self.simulation is None else dict(self.simulation.asked),
            "cost_digest": None if self.simulation is None else cost_digest(self.simulation.cost),
        }
        return {name: value for name, value in values.items() if value is not None}

    def clock(self) -> Clock:
        """What the times of these engines are taken from; simulated time passes at once."""
        return VirtualClock() if self.kind == "sim" else WallClock()

    def maker(self, log_directory: Path | None, clock: Clock | None = None) -> EngineMaker:
        """For engines that log there, which a remote server and a simulation do not; simulated ones run on
        `clock`."""
        if self.kind == "sim":
            assert self.simulation is not None
            return SimMaker(self.simulation, clock or self.clock(), ceiling_budget=self.ceiling_budget)
        if self.kind == "remote":
            assert self.target is not None
            return RemoteMaker(self.target, control_block=self.control_block,
                               probe_timeout_s=self.request_timeout_s)
        assert log_directory is not None
        if self.template is not None:
            return CommandMaker(self.template, self.target, self.baseline, log_directory,
                                ready_timeout_s=self.ready_timeout_s)
        assert self.launch is not None
        return VllmMaker(self.launch, log_directory, ready_timeout_s=self.ready_timeout_s,
                         as_server=self.kind == "vllm")

    def first(self, maker: EngineMaker) -> Engine:
        """The engine to begin with."""
        config = self.launch.config_file if self.launch is not None else None
        return maker.capacity() if config is None else maker.from_config(config)
