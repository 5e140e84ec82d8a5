"""Which engine to start for which purpose."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import yaml

from engine_adapter.embedded import EmbeddedVllm
from engine_adapter.http.engine import NO_LIVE_KNOBS, HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Engine
from engine_adapter.vllm_launch import VllmLaunch
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
    """Embedded vLLM engines of one launch; each start appends to its own log in `log_directory`."""

    def __init__(self, launch: VllmLaunch, log_directory: Path, *, ready_timeout_s: float = 900.0) -> None:
        self._launch, self._logs, self._ready_timeout_s = launch, log_directory, ready_timeout_s
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
        self._logs.mkdir(parents=True, exist_ok=True)
        return EmbeddedVllm(launch, log_path=self._logs / f"engine-{self._made}.log",
                            start_deadline_s=self._ready_timeout_s)


class RemoteMaker:
    """The one server that runs already, again and again: it cannot be started with other settings."""

    def __init__(self, target: HttpTarget, *, probe_timeout_s: float) -> None:
        self._target, self._probe_timeout_s = target, probe_timeout_s

    def capacity(self) -> Engine:
        return HttpEngine(self._target, probe_timeout_s=self._probe_timeout_s)

    def with_knobs(self, knobs: Knobs) -> Engine:
        raise UsageError(NO_LIVE_KNOBS)

    def from_config(self, path: Path) -> Engine:
        raise UsageError(NO_LIVE_KNOBS)

    def config_text(self, knobs: Knobs) -> str:
        raise UsageError(NO_LIVE_KNOBS)

    def serve_command(self, knobs: Knobs) -> str:
        raise UsageError(NO_LIVE_KNOBS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSource:
    """Where the engines of a command come from: exactly one of `launch` and `target`."""

    launch: VllmLaunch | None = None
    target: HttpTarget | None = None
    ready_timeout_s: float = 900.0
    request_timeout_s: float = 120.0

    @property
    def has_logs(self) -> bool:
        """Whether engines are started here, and write a log."""
        return self.target is None

    def maker(self, log_directory: Path | None) -> EngineMaker:
        """For engines that log there."""
        if self.target is not None:
            return RemoteMaker(self.target, probe_timeout_s=self.request_timeout_s)
        assert self.launch is not None
        assert log_directory is not None
        return VllmMaker(self.launch, log_directory, ready_timeout_s=self.ready_timeout_s)

    def first(self, maker: EngineMaker) -> Engine:
        """The engine to begin with."""
        config = self.launch.config_file if self.launch is not None else None
        return maker.capacity() if config is None else maker.from_config(config)
