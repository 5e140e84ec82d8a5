"""The engine's host process: AsyncLLM on one side, the socket to us on the other.

Run as `python -m engine_adapter.vllm_host FD`, with the launch as JSON on the first line of
standard input. Standard input stays open as a lifeline: when it ends, whoever started us is
gone, and everything of this engine is killed. Times are stamped here, as AsyncLLM hands the
tokens out, so the way to the other process adds nothing to them.
"""

import asyncio
import contextlib
import gc
import json
import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from engine_adapter.control_block import ENVIRONMENT_NAME
from engine_adapter.host_protocol import (
    GENERATE,
    HEAD,
    MESSAGE,
    TOKENS,
    TokenRecord,
    frame,
    message,
    unpack_generate,
)
from engine_adapter.processes import MARK_NAME, end_marked
from engine_adapter.vllm_launch import VllmLaunch

_LIFELINE_DEADLINE_S = 30.0


class Host:
    """Serves one engine until it is told to stop or the other side is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._tokens: list[bytes] = []
        self._serial = 0
        self._llm: Any = None

    async def serve(self, launch: VllmLaunch) -> None:
        """Start the engine, say so, and answer until the end."""
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.executor import Executor

        from engine_adapter.vllm_config import configure, describe

        config, defaults = configure(launch)
        # On the main thread: the plug-in dies with the thread that started its process.
        self._llm = AsyncLLM(config, Executor.get_class(config), log_stats=False, log_requests=False)
        gc.collect()
        gc.freeze()
        self._writer.write(message(op="ready", **describe(config, defaults)))
        health = asyncio.create_task(self._watch_health())
        try:
            await self._listen()
        except (asyncio.IncompleteReadError, ConnectionError):
            # Whoever started us is gone: the lifeline's thread ends everything, this process too. An
            # orderly shutdown beside it would end the process before that thread has cleaned up.
            await asyncio.sleep(_LIFELINE_DEADLINE_S)
            raise
        health.cancel()
        self._llm.shutdown(timeout=3)

    async def _listen(self) -> None:
        while True:
            kind, length = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            payload = await self._reader.readexactly(length)
            if kind == GENERATE:
                number, prompt, output_len, wants_ids = unpack_generate(payload)
                answering = self._answer(number, prompt, output_len, wants_ids)
                self._tasks[number] = asyncio.create_task(answering)
            elif kind == MESSAGE:
                fields = json.loads(payload)
                if fields["op"] == "stop":
                    return
                if fields["op"] == "cancel" and (task := self._tasks.get(fields["number"])) is not None:
                    task.cancel()
                if fields["op"] == "reset":
                    done = await self._llm.reset_prefix_cache()
                    self._writer.write(message(op="reset", done=bool(done)))

    async def _answer(self, number: int, prompt: list[int], output_len: int, wants_token_ids: bool) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        self._serial += 1
        ids: list[int] = []
        try:
            params = SamplingParams(max_tokens=output_len, ignore_eos=True, temperature=0.0,
                                    detokenize=False, output_kind=RequestOutputKind.DELTA)
            async for output in self._llm.generate({"prompt_token_ids": prompt}, params,
                                                   f"{number}-{self._serial}"):
                read_ns = time.perf_counter_ns()
                completion = output.outputs[0]
                reason = (completion.finish_reason or "other") if output.finished else None
                if wants_token_ids:
                    ids += completion.token_ids
                    if output.finished:   # before its last tokens, which leave with all others of the step
                        self._writer.write(message(op="answer", number=number, token_ids=ids))
                self._send_tokens(TokenRecord(number, read_ns, len(completion.token_ids), reason))
        except EngineDeadError as error:
            self._writer.write(message(op="error", number=number, kind="crashed", text=_line(error)))
        except Exception as error:
            self._writer.write(message(op="error", number=number, kind="rejected", text=_line(error)))
        finally:
            self._tasks.pop(number, None)

    def _send_tokens(self, record: TokenRecord) -> None:
        # All tokens of one engine step leave in one frame.
        if not self._tokens:
            asyncio.get_running_loop().call_soon(self._flush)
        self._tokens.append(record.pack())

    def _flush(self) -> None:
        batch, self._tokens = b"".join(self._tokens), []
        self._writer.write(frame(TOKENS, batch))

    async def _watch_health(self) -> None:
        while not self._llm.errored:
            await asyncio.sleep(0.2)
        self._writer.write(message(op="dead", text=_line(self._llm.dead_error)))


def _line(error: BaseException) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__


def _watch_lifeline() -> None:
    """Blocks until standard input ends, then ends this engine and its directory."""
    while os.read(0, 4096):
        pass
    end_marked(os.environ[MARK_NAME], but_not=[os.getpid()])
    shutil.rmtree(Path(os.environ[ENVIRONMENT_NAME]).parent, ignore_errors=True)
    os._exit(1)


async def _main(descriptor: int, launch: VllmLaunch) -> int:
    channel = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_connection(sock=channel)
    host = Host(reader, writer)
    try:
        await host.serve(launch)
    except (asyncio.IncompleteReadError, ConnectionError):
        return 1
    except Exception as error:
        writer.write(message(op="failed", kind=type(error).__name__, text=_line(error)))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        raise
    return 0


def main() -> None:
    """Entry of the host process; see the module."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            raise SystemExit(1)
        line += byte
    threading.Thread(target=_watch_lifeline, daemon=True).start()
    import uvloop

    sys.exit(uvloop.run(_main(int(sys.argv[1]), VllmLaunch.from_dict(json.loads(line)))))


if __name__ == "__main__":
    main()
