"""Live knobs are believed only when the engine's own steps and its own report show them."""

import asyncio
from pathlib import Path

import pytest

from engine_adapter.control_block import ControlBlock
from engine_adapter.engine_facts import facts_beside, info_from_facts, read_facts, write_facts
from engine_adapter.errors import Hung, NeedsRestart, StartFailed
from engine_adapter.knobs import Knobs
from engine_adapter.live_knobs import LiveKnobs, open_control_block, probe_prompt
from engine_adapter.seam import EngineInfo
from workloads.errors import UsageError

STARTED = Knobs(2048, 64)
FACTS = {
    "version": "1", "max_model_len": 1024, "vocab_size": 4096, "num_kv_blocks": 10, "kv_block_size": 16,
    "knobs": STARTED.as_dict(), "default_knobs": STARTED.as_dict(), "fingerprint": {},
    "limits": {"token_budget": 2048, "max_seqs": 64},
}


def info(note: str = "") -> EngineInfo:
    return info_from_facts(FACTS, name="x", model="m", knobs=STARTED, live_knobs_note=note, start_seconds=1.0)


class Scheduler:
    """The engine's side of the block: takes over what is asked at its next step, as the plug-in does."""

    def __init__(self, path: Path, *, obeys: bool = True, takes_over: bool = True) -> None:
        self.block = ControlBlock.attach(path)
        self.obeys, self.takes_over = obeys, takes_over
        self.knobs, self.version, self.steps = STARTED, 0, 0
        self.block.report(STARTED, 0)
        self.block.announce(4711)

    async def ask(self, length: int) -> None:
        if self.takes_over and (asked := self.block.asked_since(self.version)) is not None:
            self.version, self.knobs = asked
            self.block.report(self.knobs, self.version)
        while length > 0:
            tokens = min(length, self.knobs.token_budget) if self.obeys else length
            self.block.write_step((self.steps, 0, 1, tokens, tokens, 0, 0, 0, 1, 0, 0), [])
            self.steps += 1
            length -= tokens


@pytest.fixture
def block(tmp_path: Path) -> ControlBlock:
    return ControlBlock.create(tmp_path / "block")


@pytest.fixture
def path(block: ControlBlock, tmp_path: Path) -> Path:
    return tmp_path / "block"


def test_an_engine_that_obeys_has_live_knobs(block: ControlBlock, path: Path) -> None:
    """The trial leaves the engine as it was; a change is reported back by the engine itself."""
    engine = Scheduler(path)
    live = LiveKnobs(block, engine.ask)
    assert asyncio.run(live.why_not(STARTED, 1024)) == ""
    assert engine.knobs == STARTED
    small = Knobs(64, 8, 32)
    assert asyncio.run(live.apply(small, info())).knobs == small == engine.knobs
    assert len(block.read_steps()) == 0, "steps of probes are not a run's"


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [({"obeys": False}, "a step carried 96 tokens"),
     ({"takes_over": False}, "the engine reports budget 2048")],
    ids=["says yes and does no", "takes nothing over"],
)
def test_an_engine_that_does_not_obey_has_none(block: ControlBlock, path: Path, behaviour: dict[str, bool],
                                               why: str) -> None:
    """The reason is what was seen."""
    assert why in asyncio.run(LiveKnobs(block, Scheduler(path, **behaviour).ask).why_not(STARTED, 1024))


def test_without_the_plug_in_nothing_is_asked(block: ControlBlock) -> None:
    """No probe is sent to an engine whose scheduler is not ours, or has stepped aside."""
    async def never(length: int) -> None:
        raise AssertionError("a probe was sent")

    live = LiveKnobs(block, never)
    assert "not loaded" in asyncio.run(live.why_not(STARTED, 1024))
    block.announce(4711)
    block.step_aside()
    assert "not one that the plug-in knows" in asyncio.run(live.why_not(STARTED, 1024))


@pytest.mark.parametrize(
    ("knobs", "note", "why"),
    [(Knobs(4096, 8), "", "token budget 4096 is above"),
     (Knobs(64, 8, policy="priority"), "", "policy is fixed"),
     (Knobs(64, 8), "no plug-in", "no plug-in")],
    ids=["above the ceiling", "another policy", "not live"],
)
def test_what_a_running_engine_cannot_take_needs_a_restart(
        block: ControlBlock, path: Path, knobs: Knobs, note: str, why: str) -> None:
    """Refused before the engine is asked."""
    engine = Scheduler(path)
    with pytest.raises(NeedsRestart, match=why):
        asyncio.run(LiveKnobs(block, engine.ask).apply(knobs, info(note)))
    assert engine.steps == 0


def test_an_engine_that_does_not_answer_a_probe_is_hung(block: ControlBlock, path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a probe has an end."""
    monkeypatch.setattr("engine_adapter.live_knobs.PROBE_DEADLINE_S", 0.01)
    Scheduler(path)

    async def forever(length: int) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Hung, match="did not answer a probe"):
        asyncio.run(LiveKnobs(block, forever).apply(Knobs(64, 8), info()))


def test_probes_never_share_a_prefix() -> None:
    """A prefix cache would shorten the second one."""
    assert len({tuple(probe_prompt(number, 1)) for number in range(1, 200)}) == 199
    assert len(probe_prompt(3, 700)) == 700


def test_a_running_engine_is_joined_without_its_older_steps(block: ControlBlock, path: Path) -> None:
    """What others had computed before we came is no part of our runs."""
    asyncio.run(Scheduler(path).ask(5000))
    assert len(open_control_block(path).read_steps()) == 0


@pytest.mark.parametrize("content", [None, b"", b"\0" * 9000])
def test_what_is_no_control_block_is_refused_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    """The message names the flag, and how such a server is started."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"--control-block .*engine_adapter\.vllm_server FILE") as caught:
        open_control_block(path)
    assert "\n" not in str(caught.value)


def test_a_block_that_no_engine_took_up_is_refused(block: ControlBlock, path: Path) -> None:
    """The server that was started with it does not carry the plug-in."""
    with pytest.raises(UsageError, match="not in use by any engine"):
        open_control_block(path)


def test_facts_come_back_as_written(tmp_path: Path) -> None:
    """They lie beside the control block; without them the start has failed."""
    path = facts_beside(tmp_path / "block")
    with pytest.raises(StartFailed):
        read_facts(path)
    write_facts(path, FACTS)
    assert read_facts(path) == FACTS
    assert info().settings.limits.refusal(STARTED) is None
