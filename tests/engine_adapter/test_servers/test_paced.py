"""The paced server in its process, through a plain socket."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from engine_adapter.http.openai_stream import decode_stream
from engine_adapter.test_servers.paced_answers import BadRequest, paced_answer
from engine_adapter.test_servers.paced_process import PacedServer

USAGE = {"include_usage": True, "continuous_usage_stats": True}


async def post(base_url: str, body: dict[str, object], *, path: str = "/v1/completions",
               name: str = "me") -> tuple[int, bytes]:
    """Status and undone body of one request."""
    host, _, port = base_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        data = json.dumps(body).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Request-Id: {name}\r\n"
                     f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        content = b""
        if "chunked" in head:
            while size := int(await reader.readline(), 16):
                content += (await reader.readexactly(size + 2))[:-2]
        else:
            length = head.partition("content-length: ")[2].partition("\r\n")[0]
            content = await reader.readexactly(int(length))
        return int(head.split(" ")[1]), content
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def asked(**more: object) -> dict[str, object]:
    return {"model": "100 %d", "prompt": [1, 2, 3], "max_tokens": 5, "stream": True} | more


def test_answers_are_as_long_and_as_slow_as_asked_and_the_truth_knows_them() -> None:
    """So many tokens, none before its time; figures and arrays are those of these requests."""
    async def run() -> None:
        async with PacedServer(ttft_ms=20, interval_ms=5) as server:
            answers = await asyncio.gather(*(
                post(server.base_url, asked(max_tokens=n), name=f"r{n}") for n in (1, 5)))
            assert [len(decode_stream([body]).message_tokens) for _, body in answers] == [1, 5]
            figures, arrays = await server.truth(), await server.truth_arrays()
            await server.reset_truth()
            assert (await server.truth())["requests"] == 0
        assert (figures["requests"], figures["messages"]) == (2, 6)
        assert figures["ttft_ms"]["p50"] >= 20
        assert figures["itl_ms"]["mean"] > 0
        rows = {name: row for row, name in enumerate(arrays["x_request_id"].tolist())}
        assert arrays["tokens"][[rows[b"r1"], rows[b"r5"]]].tolist() == [1, 5]
        # No message leaves before its time; after a late one the next may follow sooner.
        offset, send_ns = arrays["offset"], arrays["send_ns"]
        for row in rows.values():
            times = send_ns[offset[row] : offset[row + 1]] - arrays["arrived_ns"][row]
            assert all(at >= (20 + 5 * k) * 1e6 for k, at in enumerate(times.tolist()))

    asyncio.run(run())


@pytest.mark.parametrize("tokens_per_message", [1, 2])
@pytest.mark.parametrize(("path", "prompt"), [
    ("/v1/completions", {}),
    ("/v1/chat/completions", {"prompt": None, "messages": [{"role": "user", "content": "one two three"}]}),
])
@pytest.mark.parametrize(("options", "source"), [
    ({}, "events"),
    ({"return_token_ids": True}, "token_ids"),
    ({"stream_options": {"include_usage": True}}, "usage"),
    ({"stream_options": USAGE}, "usage"),
])
def test_answers_say_what_vllm_would(tokens_per_message: int, path: str, prompt: dict[str, object],
                                     options: dict[str, object], source: str) -> None:
    """Both endpoints, several tokens a message, with ids and with both kinds of usage."""
    answer = paced_answer(json.dumps(asked() | prompt | options).encode(), chat="chat" in path, name="x",
                          tokens_per_message=tokens_per_message)
    middles = [answer.middle_with(k * tokens_per_message) for k in range(2, answer.messages)]
    content = decode_stream([undone(answer.first + b"".join(middles) + answer.last)])
    assert content.failure is None
    assert (content.finish_reason, content.done, content.token_count_source) == ("length", True, source)
    expected = [1] * 5 if tokens_per_message == 1 else [2, 2, 1]
    assert content.message_tokens == (expected if source != "events" else [1] * len(expected))
    assert content.prompt_tokens == (3 if "stream_options" in options else None)
    assert content.text == " tok" * 5


def undone(body: bytes) -> bytes:
    """A chunked body without its chunks."""
    content = b""
    while (size := int((head := body.partition(b"\r\n"))[0], 16)):
        content += head[2][:size]
        assert head[2][size : size + 2] == b"\r\n"
        body = head[2][size + 2 :]
    assert body == b"0\r\n\r\n"
    return content


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"stream": false}', b'{"stream": true, "max_tokens": -1}',
                                  b'{"stream": true, "prompt": 5}', b'{"stream": true, "model": "\xff"}'])
def test_what_cannot_be_streamed_is_refused(body: bytes) -> None:
    """The message becomes a 400."""
    with pytest.raises(BadRequest):
        paced_answer(body, chat=False, name="x", tokens_per_message=1)


def test_other_requests_have_their_answers() -> None:
    """400 and 404 leave the server running; a client that leaves in mid-answer too."""
    async def run() -> None:
        async with PacedServer(ttft_ms=0, interval_ms=1) as server:
            assert (await post(server.base_url, {"stream": False}))[0] == 400
            assert (await post(server.base_url, {}, path="/nothing"))[0] == 404
            assert (await post(server.base_url, {}, path="/health"))[0] == 405
            leaving = asyncio.create_task(post(server.base_url, asked(max_tokens=100_000)))
            await asyncio.sleep(0.05)
            leaving.cancel()
            assert (await post(server.base_url, asked()))[0] == 200
            # A large prompt comes in many reads.
            many = asked(prompt=list(range(100_000)), stream_options=USAGE)
            status, body = await post(server.base_url, many)
            assert (status, decode_stream([body]).prompt_tokens) == (200, 100_000)

    asyncio.run(run())


@pytest.mark.parametrize("way", ["stdin", "term"])
def test_it_ends_with_its_owner(way: str) -> None:
    """When its standard input closes, as when whoever started it dies, and on SIGTERM; without a trace."""
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "engine_adapter.test_servers.paced"], stdin=read_end, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    os.close(read_end)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on 127.0.0.1:")
        if way == "term":
            process.send_signal(signal.SIGTERM)
        else:
            os.close(write_end)
        rest, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        if way == "term":
            os.close(write_end)
    assert (process.returncode, rest, errors) == (0, "", "")
