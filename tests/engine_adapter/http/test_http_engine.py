"""A server that somebody else started: what the client finds out about it, and how it behaves."""

import asyncio
import json
import time

import pytest

from engine_adapter.answer import FailureKind
from engine_adapter.contract import EngineContract
from engine_adapter.errors import Crashed, NeedsRestart, Rejected, StartFailed
from engine_adapter.http.engine import HttpEngine
from engine_adapter.http.target import HttpTarget
from engine_adapter.knobs import Knobs
from engine_adapter.seam import Engine, GenerateRequest
from engine_adapter.test_servers.paced_process import PacedServer
from engine_adapter.test_servers.script import (
    Close,
    Hang,
    Script,
    Send,
    Wait,
    stream_head,
    streamed,
)
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from engine_adapter.test_servers.wire import chunk, response
from tests.engine_adapter.http.asked_engine import GOOD, refusal, started, text, with_server
from workloads.errors import UsageError


class TestContract(EngineContract):
    """The seam's own checks, against the paced server in its process."""

    server: PacedServer

    @classmethod
    def setup_class(cls) -> None:
        runner = asyncio.Runner()
        cls.server = PacedServer(ttft_ms=1, interval_ms=1)
        runner.run(cls.server.__aenter__())
        cls._server_runner = runner
        super().setup_class()

    @classmethod
    def teardown_class(cls) -> None:
        try:
            super().teardown_class()
        finally:
            cls._server_runner.run(cls.server.__aexit__(None, None, None))
            cls._server_runner.close()

    @classmethod
    def make_engine(cls) -> Engine:
        return HttpEngine(HttpTarget(base_url=cls.server.base_url))


@pytest.mark.parametrize("field", ["return_token_ids", "ignore_eos", "min_tokens", "stream_options",
                                   "continuous_usage_stats"])
@pytest.mark.parametrize("named", [True, False])
def test_what_a_server_does_not_know_is_left_out(field: str, named: bool) -> None:
    """Refused with or without its name in the message, the request is simplified until it is taken."""
    def choose(request: ScriptedRequest) -> Script:
        if field in request.body.decode():
            return refusal(400, f"unknown field {field}" if named else "extra fields not permitted")
        return GOOD

    info = started(choose, model="m")
    assert field in info.fingerprint["refused"]
    if named:
        assert info.fingerprint["refused"] == [field]
    assert info.fingerprint["prompts"] == "token ids"


def test_a_server_without_token_ids_gets_words_of_the_same_length() -> None:
    """Two counted prompts are enough to know its tokens a word, and what it adds to each prompt."""
    def choose(request: ScriptedRequest) -> Script:
        prompt = request.json()["prompt"]
        if not isinstance(prompt, str):
            return refusal(422, "prompt must be a string")
        usage = {"prompt_tokens": 7 + 2 * len(prompt.split()), "completion_tokens": 2}
        events = [text("a"), text("b", finish_reason="length"), {"choices": [], "usage": usage}]
        return streamed(events, gap_s=0)

    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        info = await engine.start()
        assert info.fingerprint["prompts"] == "text"
        assert info.fingerprint["refused"] == ["token ids"]
        assert info.fingerprint["prompt_overhead_tokens"] == 7
        answer = await engine.answer(GenerateRequest(1, list(range(10, 117)), 2))
        assert answer.decode().prompt_tokens == 107

    with_server(choose, use, model="m")


def test_a_small_vocabulary_is_found_out() -> None:
    """Ids are kept below what the server refuses."""
    def choose(request: ScriptedRequest) -> Script:
        if max(request.json()["prompt"]) >= 500:
            return refusal(400, "Token id 31999 is out of vocabulary")
        return GOOD

    assert 250 <= started(choose, model="m").vocab_size <= 500


def test_the_only_model_is_taken_and_several_must_be_named() -> None:
    """As in vLLM's own client; the error lists the names."""
    one = {"/v1/models": response({"data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": 77}]})}
    info = started(GOOD, pages=one)
    assert (info.model, info.name, info.max_model_len) == ("tiny", "vllm", 77)
    two = {"/v1/models": response({"data": [{"id": "a"}, {"id": "b"}]})}
    with pytest.raises(UsageError, match="serves a, b: say which one with --model"):
        started(GOOD, pages=two)


@pytest.mark.parametrize("page", [response("<html>hello</html>"), response({"data": None}), response([1, 2]),
                                  response({"error": "no"}, status=404)])
def test_a_server_that_lists_no_models_needs_a_name(page: bytes) -> None:
    """With --model it is measured all the same."""
    with pytest.raises(UsageError, match="--model"):
        started(GOOD, pages={"/v1/models": page})
    assert started(GOOD, pages={"/v1/models": page}, model="m").max_model_len is None


def test_a_wrong_key_is_the_users_error() -> None:
    """One line that says which flags hold the key; the key itself is in no message."""
    with pytest.raises(UsageError, match="--api-key-env") as refused:
        started(refusal(401, "invalid key sk-wrong-key"), model="m", api_key="sk-wrong-key")
    assert "sk-wrong-key" not in str(refused.value)


def test_a_wrong_path_is_the_users_error() -> None:
    """404 names the path and the model."""
    with pytest.raises(UsageError, match="/v1/completions for m"):
        started(refusal(404, "Not Found"), model="m")


def test_a_server_that_fails_its_first_request_is_measured_all_the_same() -> None:
    """A probe must not hide what a run would count; the failure is told."""
    info = started(refusal(503, "overloaded"), model="m")
    assert "503" in info.fingerprint["probe_failure"]
    assert "overloaded" in info.fingerprint["probe_failure"]


def test_nobody_there_is_one_line() -> None:
    """Refused connections end the start, with the address and what to do."""
    async def go() -> None:
        async with ScriptedServer(GOOD) as server:
            address = server.base_url
        engine = HttpEngine(HttpTarget(base_url=address, model="m"))
        with pytest.raises(StartFailed, match="no server answers at"):
            await engine.start()

    asyncio.run(go())


def test_secrets_are_cleaned_from_what_a_server_repeats() -> None:
    """A server that echoes the key in its error does not bring it into a result."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> str:
        await engine.start()
        decoded = (await engine.answer(GenerateRequest(1, [11], 2))).decode()
        assert decoded.failure is not None
        return decoded.failure.text

    def choose(request: ScriptedRequest) -> Script:
        return GOOD if request.number == 0 else refusal(500, f"bad {request.headers['authorization']}")

    said = with_server(choose, use, model="m", api_key="sk-0123456789")
    assert "sk-0123456789" not in said
    assert "***" in said


def test_times_are_those_of_the_socket_and_not_of_the_reader() -> None:
    """The event loop stands still while tokens of a paced server arrive: their times are before it wakes."""
    async def go() -> None:
        async with PacedServer(ttft_ms=5, interval_ms=10) as server:
            engine = HttpEngine(HttpTarget(base_url=server.base_url))
            info = await engine.start()
            if not info.fingerprint["kernel_stamps"]:
                pytest.skip("this system's kernel does not stamp what it receives")
            await engine.connect(5)
            answers = [engine.compose(GenerateRequest(n, [11, 12], 1)) for n in range(5)]
            for answer in answers:
                answer.send()
            # Until the server, in its own process, has answered all of them: nothing here reads meanwhile.
            began_ns = time.perf_counter_ns()
            time.sleep(0.5)
            woke_ns = time.perf_counter_ns()
            decoded = []
            for answer in answers:
                await answer.wait()
                decoded.append(answer.decode())
            await engine.stop()
            assert all(began_ns - 1e8 < one.read_ns[0] < woke_ns for one in decoded)
            assert all(one.late_ns[0] > 0 for one in decoded)

    asyncio.run(go())


def test_connections_are_used_again_and_opened_in_advance() -> None:
    """Three opened beforehand serve three requests at once, and three more after them."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        await engine.connect(3)
        for _ in range(2):
            await asyncio.gather(*[engine.answer(GenerateRequest(n, [11], 2)) for n in range(3)])
        assert server.peak_connections <= 4  # with the control plane's own
        assert len({request.connection for request in server.requests}) == 3

    with_server(GOOD, use, model="m")


def test_a_cancelled_answer_keeps_what_came_and_leaves_the_server() -> None:
    """On cancellation the connection is closed, and the tokens until then can be decoded."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        answer = engine.compose(GenerateRequest(1, [11], 9))
        answer.send()
        waiting = asyncio.create_task(answer.wait())
        while answer.last_sign_ns() == answer.sent_ns:
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        decoded = answer.decode()
        assert sum(decoded.read_tokens) == 1
        assert decoded.failure is not None
        await asyncio.sleep(0.02)
        assert server.requests[-1].client_left_ns is not None

    def choose(request: ScriptedRequest) -> Script:
        return GOOD if request.number == 0 else (*streamed([text("a")], done=False)[:-1], Hang())

    with_server(choose, use, model="m")


def test_keep_alive_comments_are_no_sign_of_a_token() -> None:
    """A gateway's pings do not keep a request alive that brings nothing."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        answer = engine.compose(GenerateRequest(1, [11], 9))
        answer.send()
        await asyncio.sleep(0.05)
        assert answer.last_sign_ns() == answer.sent_ns
        answer.give_up(FailureKind.TIMEOUT_READ, "no token came")
        failure = answer.decode().failure
        assert failure is not None
        assert failure.kind is FailureKind.TIMEOUT_READ

    pings = (Send(stream_head()), *[Send(chunk(b": ping\n\n")), Wait(0.01)] * 3, Hang())
    with_server(lambda request: GOOD if request.number == 0 else pings, use, model="m")


def test_its_settings_cannot_be_changed() -> None:
    """apply says so and what to do; unknown settings are None, not a guess."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        info = await engine.start()
        assert (info.knobs, info.default_knobs, info.limits, info.live_knobs) == (None, None, None, False)
        with pytest.raises(NeedsRestart, match="--server vllm"):
            await engine.apply(Knobs(64, 8))
        with pytest.raises(NeedsRestart):
            _ = info.settings

    with_server(GOOD, use, model="m")


@pytest.mark.parametrize(("script", "kind"), [
    (refusal(400, "too long"), Rejected), ((Close(),), Rejected)])
def test_a_lone_request_that_brings_nothing_raises(script: Script, kind: type[Exception]) -> None:
    """`generate`, for probes, speaks the seam's errors."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        with pytest.raises(kind):
            async for _ in engine.generate(GenerateRequest(1, [11], 2)):
                pass

    with_server(lambda request: GOOD if request.number == 0 else script, use, model="m")


def test_a_stopped_engine_says_so() -> None:
    """Nothing is sent after stop."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        await engine.stop()
        with pytest.raises(Crashed):
            engine.compose(GenerateRequest(1, [11], 2))

    with_server(GOOD, use, model="m")


def test_the_request_names_itself_as_every_server_takes_it() -> None:
    """X-Request-Id is a UUID, the body is JSON, and the model is the one asked for."""
    async def use(engine: HttpEngine, server: ScriptedServer) -> None:
        await engine.start()
        (request,) = server.requests
        assert json.loads(request.body)["model"] == "m"
        assert len(request.headers["x-request-id"]) == 36

    with_server(GOOD, use, model="m")
