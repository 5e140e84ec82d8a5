"""Servers that we start: their processes, and the client that speaks to them, behind the Engine seam."""

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from engine_adapter.clock import Clock, WallClock
from engine_adapter.engine_home import EngineHome
from engine_adapter.errors import Crashed, EngineError
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.processes import is_running
from engine_adapter.seam import Applied, EngineInfo, GenerateRequest, TokenEvent
from engine_adapter.servers.command_template import CommandTemplate
from engine_adapter.servers.front import ServedEngine, ServerFront
from engine_adapter.servers.live import LiveServer
from engine_adapter.servers.process import ServerProcess, free_port
from engine_adapter.start_failure import PortInUse
from engine_adapter.step_log import StepLog
from engine_adapter.vllm_launch import VllmLaunch
from workloads.errors import UsageError

_PORT_ATTEMPTS = 3
_NOTICED_WITHIN_S = 0.25
_ENDS_WITHIN_S = 5.0
"""A killed process closes its connections some time before it is seen to have ended."""
_HOST = "127.0.0.1"
_NO_LIMIT = 1 << 30
"""What a command's server cannot be set to shows only when it is started."""


class ManagedServer(ServerFront[ServedEngine], ABC):
    """What the two kinds below share. One instance is one start.

    `target` says how to speak to the server (API, key, headers, model); its address is used only by
    a command that does not take a port. `log_path` keeps the server's log; without it the log goes
    with the server. `start_deadline_s` bounds loading and warm-up.
    """

    def __init__(self, *, target: HttpTarget | None, log_path: Path | None, start_deadline_s: float,
                 clock: Clock | None) -> None:
        super().__init__()
        self._asked_target = target or HttpTarget(base_url=f"http://{_HOST}")
        self._log_path, self._start_deadline_s = log_path, start_deadline_s
        self._clock = clock or WallClock()
        self._process: ServerProcess | None = None

    async def start(self) -> EngineInfo:
        """See the seam; also raises PortInUse, a StartFailed."""
        began_ns = self._clock.now_ns()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                info = await self._start_once()
                return replace(info, start_seconds=(self._clock.now_ns() - began_ns) / 1e9)
            except PortInUse:
                # Somebody was quicker at the port that was free.
                if attempt == _PORT_ATTEMPTS or not self._chooses_port():
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenEvent]:
        try:
            async for event in super().generate(request):
                if event.finish_reason == "error" and (crash := await self._crash()) is not None:
                    raise crash
                yield event
        except EngineError as error:
            raise (await self._crash() or error) from None

    async def apply(self, knobs: Knobs) -> Applied:
        return await self._served().apply(knobs)

    def step_log(self) -> StepLog:
        return StepLog() if self._behind is None else self._behind.step_log()

    async def death(self) -> Crashed | None:
        self._served()
        return await self._crash()

    async def stop(self) -> None:
        try:
            if self._behind is not None:
                # First, or the server would wait for the connections to end.
                behind, self._behind = self._behind, None
                await behind.stop()
        finally:
            if self._process is not None:
                await self._process.stop()

    async def _start_once(self) -> EngineInfo:
        home = EngineHome(self._log_path)
        try:
            port = free_port() if self._chooses_port() else self._asked_target.port
            target = self._asked_target
            if self._chooses_port():
                target = replace(target, base_url=f"http://{_HOST}:{port}{urlsplit(target.base_url).path}")
            command = self._command(home, port)
        except BaseException:
            home.remove()
            raise
        self._process = ServerProcess(command, home=home, environment=self._environment(home),
                                      base_url=target.root, deadline_s=self._start_deadline_s)
        await self._process.start()
        try:
            self._behind = self._client(target, home)
            return await self._behind.start()
        except BaseException as error:
            crash = await self._crash() if isinstance(error, EngineError) else None
            await self.stop()
            raise (crash or error) from None

    async def _crash(self) -> Crashed | None:
        """Why the server can no longer answer; None while it can, and before the start and after stop()."""
        process = self._process
        if process is None or self._behind is None:
            return None
        scheduler = process.home.block.plugin_pid
        if scheduler and not is_running(scheduler):
            how = "its engine's process ended"
        elif await self._behind.death() is None and not await process.has_ended(within_s=_NOTICED_WITHIN_S):
            return None
        elif await process.has_ended(within_s=_ENDS_WITHIN_S):
            how = process.how_it_ended()
        else:
            how = "it takes no connections any more"
        log = f"; its log is {self._log_path}" if self._log_path is not None else ""
        return Crashed(f"the server died while it served: {how}{log}")

    # What the kinds differ in.

    def _chooses_port(self) -> bool:
        return True

    @abstractmethod
    def _command(self, home: EngineHome, port: int) -> list[str]: ...

    @abstractmethod
    def _client(self, target: HttpTarget, home: EngineHome) -> ServedEngine: ...

    def _environment(self, home: EngineHome) -> dict[str, str]:
        return home.environment()


class ManagedVllm(ManagedServer):
    """vLLM's own server with our scheduler plugged in, its knobs as flags: live knobs and a step log."""

    def __init__(self, launch: VllmLaunch, *, target: HttpTarget | None = None, log_path: Path | None = None,
                 start_deadline_s: float = 900.0, clock: Clock | None = None) -> None:
        super().__init__(target=target, log_path=log_path, start_deadline_s=start_deadline_s, clock=clock)
        self._launch = launch

    async def start(self) -> EngineInfo:
        if importlib.util.find_spec("vllm") is None:
            raise UsageError("--server vllm needs vLLM, which is not installed here: run `make setup`, "
                             "or pip install 'stallfree[cpu]' (with an NVIDIA GPU: 'stallfree[cuda]')")
        return await super().start()

    def _command(self, home: EngineHome, port: int) -> list[str]:
        launch = self._launch
        words = [sys.executable, "-m", "engine_adapter.vllm_server", str(home.block_path)]
        if launch.ceiling_budget and launch.knobs is None and launch.config_file is None:
            words += ["--ceiling-budget", str(launch.ceiling_budget)]
        flags = (["--config", str(launch.config_file)] if launch.config_file is not None
                 else launch.serve_words(launch.knobs))
        return [*words, "--", *flags, "--host", _HOST, "--port", str(port)]

    def _client(self, target: HttpTarget, home: EngineHome) -> ServedEngine:
        return LiveServer(target, home.block_path, clock=self._clock, restore=False)

    def _environment(self, home: EngineHome) -> dict[str, str]:
        offline = Path(self._launch.model).is_dir() or self._launch.config_file is not None
        # Opens /reset_prefix_cache. It listens on the loopback address only.
        return home.environment(ours=True, offline=offline) | {"VLLM_SERVER_DEV_MODE": "1"}


class ManagedCommand(ManagedServer):
    """Any server that a command starts in the foreground; knobs are set by starting it anew.

    `knobs` fill the template's fields and are what the engine says it has, where the command sets both
    token budget and active sequences; they are not read back. `baseline` stands for the engine's own
    default, and is by default the knobs themselves.
    """

    def __init__(self, template: CommandTemplate, *, target: HttpTarget | None = None,
                 knobs: Knobs | None = None, baseline: Knobs | None = None, log_path: Path | None = None,
                 start_deadline_s: float = 900.0, clock: Clock | None = None) -> None:
        super().__init__(target=target, log_path=log_path, start_deadline_s=start_deadline_s, clock=clock)
        if target is None and not template.mentions("port"):
            raise UsageError("--server-command does not mention {port}: give --base-url with the address "
                             "that the server will listen on")
        self._template, self._knobs, self._baseline = template, knobs, baseline or knobs

    @property
    def knobs_in_template(self) -> frozenset[str]:
        """Names in Knobs of what can be searched with this command."""
        return self._template.knobs

    async def start(self) -> EngineInfo:
        info = await super().start()
        named = ", ".join(sorted(self.knobs_in_template)) or "none"
        info = replace(info, live_knobs_note=(
            f"this server's settings change only when it is started anew; its command sets: {named}"))
        if self._knobs is None or not {"token_budget", "max_seqs"} <= self.knobs_in_template:
            return info
        longest = info.max_model_len or _NO_LIMIT
        return replace(info, knobs=self._knobs, default_knobs=self._baseline,
                       limits=KnobLimits(_NO_LIMIT, _NO_LIMIT, longest))

    def _chooses_port(self) -> bool:
        return self._template.mentions("port")

    def _command(self, home: EngineHome, port: int) -> list[str]:
        return self._template.words(port=port, model=self._asked_target.model, knobs=self._knobs)

    def _client(self, target: HttpTarget, home: EngineHome) -> ServedEngine:
        return HttpEngine(target, clock=self._clock)
