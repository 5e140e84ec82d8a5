"""The checks that every engine behind the seam passes: subclass, say how to make one, inherit the rest.

    class TestMyEngine(EngineContract):
        @classmethod
        def make_engine(cls) -> Engine: ...

One engine serves the whole class, because a real one takes half a minute to start.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from engine_adapter.errors import Crashed, EngineError, NeedsRestart, Rejected
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Engine, EngineInfo, GenerateRequest, TokenEvent

T = TypeVar("T")


class EngineContract:
    """Inherit in a test class; see the module."""

    engine: ClassVar[Engine]
    info: ClassVar[EngineInfo]
    _runner: ClassVar[asyncio.Runner]
    _next_number: ClassVar[int] = 0

    @classmethod
    def make_engine(cls) -> Engine:
        """A new engine, not started, whose model takes prompts of at least 600 tokens."""
        raise TypeError(f"{cls.__name__} must define make_engine()")

    @classmethod
    def setup_class(cls) -> None:
        cls._runner = asyncio.Runner()
        cls.engine = cls.make_engine()
        cls.info = cls.run(cls.engine.start())

    @classmethod
    def teardown_class(cls) -> None:
        """Stopping works twice, and a stopped engine says so instead of hanging."""
        try:
            cls.run(cls.engine.stop())
            cls.run(cls.engine.stop())
            assert cls.refusal(cls.answer(8, 2), Crashed)
        finally:
            cls._runner.close()

    @classmethod
    def run(cls, coroutine: Coroutine[Any, Any, T]) -> T:
        return cls._runner.run(asyncio.wait_for(coroutine, timeout=120))

    @classmethod
    def refusal(cls, coroutine: Coroutine[Any, Any, Any], kind: type[EngineError]) -> str:
        """The message of the error that must be raised."""
        try:
            cls.run(coroutine)
        except kind as error:
            return str(error)
        raise AssertionError(f"{kind.__name__} was not raised")

    @classmethod
    def request(cls, input_len: int, output_len: int) -> GenerateRequest:
        """A request with a number and a prompt that this class has not used before."""
        number = cls._next_number
        cls._next_number += 1
        first, usable = number * 9973, cls.info.vocab_size - 20
        return GenerateRequest(number, [10 + (first + i) % usable for i in range(input_len)], output_len)

    @classmethod
    async def answer(cls, input_len: int, output_len: int) -> list[TokenEvent]:
        return [event async for event in cls.engine.generate(cls.request(input_len, output_len))]

    def test_it_says_what_it_is(self) -> None:
        """The engine reports its version, its knobs within its limits, and a vocabulary."""
        assert self.info.version
        assert self.info.vocab_size > 0
        if self.info.limits is not None and self.info.knobs is not None:
            assert self.info.limits.refusal(self.info.knobs) is None

    def test_every_asked_token_comes(self) -> None:
        """Exactly the asked number of tokens arrive, in order of time; the last event says why it ended."""
        events = self.run(self.answer(40, 7))
        assert sum(e.num_tokens for e in events) == 7
        times = [e.read_ns for e in events]
        assert times == sorted(times)
        assert [e.finish_reason for e in events[:-1]] == [None] * (len(events) - 1)
        assert events[-1].finish_reason == "length"

    def test_the_tokens_of_an_answer_are_told_at_its_end_or_not_at_all(self) -> None:
        """Where they were asked for, and are known, the last event has every one; no other event has any."""
        async def told(request: GenerateRequest) -> list[Sequence[int]]:
            return [event.token_ids async for event in self.engine.generate(request)]

        asked = replace(self.request(40, 7), wants_token_ids=True)
        *before, last = self.run(told(asked))
        assert not any(map(len, before))
        assert len(last) in (0, 7)
        assert all(id_ >= 0 for id_ in last)
        assert not any(map(len, self.run(told(self.request(40, 7)))))

    def test_many_at_once(self) -> None:
        """Requests in flight together all get their own tokens."""
        async def all_of_them() -> list[list[TokenEvent]]:
            return await asyncio.gather(*[self.answer(10 + i, 3 + i) for i in range(6)])

        answers = self.run(all_of_them())
        assert [sum(e.num_tokens for e in a) for a in answers] == [3, 4, 5, 6, 7, 8]

    def test_too_long_a_prompt_is_refused_and_the_engine_goes_on(self) -> None:
        """A request that cannot fit is Rejected with a reason; the next one is answered."""
        assert self.refusal(self.answer((self.info.max_model_len or 1 << 20) + 1, 4), Rejected)
        assert sum(e.num_tokens for e in self.run(self.answer(8, 2))) == 2

    def test_an_empty_prompt_is_refused(self) -> None:
        """Nothing to read is an error of the request, not of the engine."""
        assert self.refusal(self.answer(0, 4), Rejected)

    def test_cancelling_frees_the_slot(self) -> None:
        """A closed iterator ends its request: the engine becomes idle and serves the next one."""
        async def first_token_then_leave() -> None:
            stream = self.engine.generate(self.request(16, 400))
            async for _ in stream:
                break
            await stream.aclose()  # type: ignore[attr-defined]

        self.run(first_token_then_leave())
        assert sum(e.num_tokens for e in self.run(self.answer(8, 2))) == 2
        self.engine.step_log()
        self.run(self.answer(8, 2))
        log = self.engine.step_log()
        if len(log):
            assert log.steps["num_decodes"].max() <= 1

    def test_the_step_log_holds_the_whole_prompt_once(self) -> None:
        """The prefill chunks of a request add up to its prompt, each starting where the last one ended."""
        self.engine.step_log()
        request = self.request(300, 4)

        async def play() -> None:
            async for _ in self.engine.generate(request):
                pass

        self.run(play())
        log = self.engine.step_log()
        if not len(log):
            return
        mine = log.chunks["request"] == request.number
        tokens, prefixes = log.chunks["tokens"][mine].tolist(), log.chunks["prefix"][mine].tolist()
        assert sum(tokens) == 300
        assert prefixes == [sum(tokens[:i]) for i in range(len(tokens))]
        assert (log.duration_ns() > 0).all()
        assert (log.steps["end_ns"][1:] >= log.steps["end_ns"][:-1]).all()
        assert len(self.engine.step_log()) == 0, "steps are handed out once"

    def test_a_live_budget_bounds_every_step(self) -> None:
        """After `apply`, no step carries more than the budget; the old knobs come back as exactly."""
        if not self.info.live_knobs:
            return
        settings = self.info.settings
        small = Knobs(token_budget=64, max_seqs=min(8, settings.limits.max_seqs))
        assert self.run(self.engine.apply(small)).knobs == small
        self.engine.step_log()
        self.run(self.answer(500, 2))
        assert self.engine.step_log().steps["num_tokens"].max() == 64
        assert self.run(self.engine.apply(settings.knobs)).knobs == settings.knobs
        self.run(self.answer(500, 2))
        assert self.engine.step_log().steps["num_tokens"].max() == min(500, settings.knobs.token_budget)

    def test_knobs_above_the_start_up_values_need_a_restart(self) -> None:
        """A running engine never claims a budget that it was not started for."""
        ceiling = 1 if self.info.limits is None else self.info.limits.token_budget
        above = Knobs(token_budget=ceiling + 1, max_seqs=1)
        assert self.refusal(self.engine.apply(above), NeedsRestart)
