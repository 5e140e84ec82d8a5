"""`tune bench` over HTTP, as a user calls it: the contract's file, servers that misbehave, keys, Ctrl-C."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import load_head
from engine_adapter.request_number import http_request_number
from engine_adapter.test_servers.fixture import text
from engine_adapter.test_servers.script import Hang, Script, Send, Wait, stream_head, streamed
from engine_adapter.test_servers.scripted import ScriptedRequest, ScriptedServer
from engine_adapter.test_servers.wire import chunk, response, sse
from tests.tuner.served import Served
from tuner.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SAVE = ("--save-result", "--result-dir", "out", "--result-filename", "r.json")
TOKENS = 6
"""Of every answer of a run; probes ask for other numbers."""
SHORT = ("--input-len", "16", "--output-len", str(TOKENS), "--num-warmups", "0", *SAVE)
VLLM_KEYS = ("date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "num_prompts",
             "request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed",
             "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput",
             "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
             "max_concurrent_requests", *(f"{stat}_{metric}_ms" for metric in ("ttft", "tpot", "itl", "e2el")
                                          for stat in ("mean", "median", "std", "p99")))
OUR_KEYS = ("p50_tbt_ms", "p99_tbt_ms", "max_tbt_ms", "valid", "invalid_reasons", "error_counts_by_kind",
            "completed", "failed", "token_count_source", "peak_in_flight")


def answer(tokens: int = TOKENS, *, wait_s: float = 0.01) -> Script:
    """As many tokens as are asked for here, `wait_s` apart."""
    events = [text("a", "length" if n == tokens - 1 else None, token_ids=[7]) for n in range(tokens)]
    return (Wait(wait_s), *streamed(events, gap_s=wait_s))


def of_run(script_for: Callable[[int], Script]) -> Callable[[ScriptedRequest], Script]:
    """Scripts for the requests of the run by their number; probes and the like are answered well."""
    def choose(request: ScriptedRequest) -> Script:
        if request.path != "/v1/completions":
            return (Send(response({"error": "no such path"}, status=404)),)
        tokens = request.json()["max_tokens"]
        if tokens != TOKENS:
            return answer(tokens, wait_s=0)
        number = http_request_number(request.headers["x-request-id"])
        assert number is not None
        return script_for(number)

    return choose


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `tune bench` in an empty directory; returns code, stdout, stderr and the result file's content,
    which is strict JSON; None without a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run(*arguments: str) -> tuple[int, str, str, Any]:
        with pytest.raises(SystemExit) as left:
            main(["bench", "-e", "one", *arguments])
        file = tmp_path / "out" / "r.json"
        told = json.loads(file.read_text(), parse_constant=pytest.fail) if file.exists() else None
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr(), told

    return run


def one_line(err: str) -> str:
    """The last line; there is no traceback above it."""
    assert "Traceback" not in err
    return err.splitlines()[-1]


def test_the_contract_of_a_closed_loop(bench: Any) -> None:
    """The command of the contract writes every key of vLLM and ours, and the server saw as many requests at
    once as the file says."""
    with Served(of_run(lambda number: answer())) as served:
        code, out, err, told = bench(
            "--base-url", served.server.base_url, "--model", "scripted", "--request-rate", "inf",
            "--max-concurrency", "5", "--num-prompts", "25", *SHORT)
    assert [key for key in (*VLLM_KEYS, *OUR_KEYS) if key not in told] == []
    assert (told["completed"], told["failed"], told["error_counts_by_kind"]) == (25, 0, {})
    assert told["request_rate"] == "inf"
    assert told["max_concurrency"] == told["peak_in_flight"] == served.server.peak_in_flight == 5
    assert told["token_count_source"] == "token_ids"
    assert (told["total_input_tokens"], told["total_output_tokens"]) == (400, 150)
    assert 0 < told["p50_tbt_ms"] <= told["p99_tbt_ms"] <= told["max_tbt_ms"]
    assert code == (0 if told["valid"] else 3), err
    assert bool(told["invalid_reasons"]) is not told["valid"]
    assert "25 of 25 requests succeeded" in out


def test_it_says_that_it_connects_and_starts_nothing(bench: Any) -> None:
    """A server that runs already is neither started nor stopped."""
    with Served(of_run(lambda number: answer(wait_s=0))) as served:
        url = served.server.base_url
        _, _, err, _ = bench("--base-url", url, "--request-rate", "100", "--num-prompts", "4", *SHORT)
    assert f"connecting to {url}" in err
    assert f"disconnecting from {url}" in err
    assert "the engine" not in err


def test_no_server_at_all(bench: Any, tmp_path: Path) -> None:
    """A refused connection is one line that names the address, exit code 3, and leaves no run."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        code, out, err, told = bench("--base-url", url, "--request-rate", "9", "--num-prompts", "4", *SHORT)
    assert (code, out, told) == (3, "", None)
    assert url in one_line(err)
    assert "start it, or correct --base-url" in one_line(err)
    assert not (tmp_path / "results" / "one").exists()


def test_a_server_that_answers_with_a_page(bench: Any) -> None:
    """HTML with status 200 is no answer: every request counts as what it is, and the run is invalid."""
    page = response(b"<html>Welcome</html>", headers={"content-type": "text/html"})
    with Served((Send(page),)) as served:
        code, _, err, told = bench("--base-url", served.server.base_url, "--request-rate", "100",
                                   "--num-prompts", "6", *SHORT)
    assert (code, told["completed"], told["failed"], told["valid"]) == (3, 0, 6, False)
    assert told["error_counts_by_kind"] == {"parse": 6}
    assert told["p99_ttft_ms"] is told["p50_tbt_ms"] is None
    assert "not one request succeeded" in one_line(err)


def test_a_server_that_always_fails(bench: Any) -> None:
    """500 for all: a result file with nothing completed, and the server's own words."""
    with Served((Send(response({"error": {"message": "out of order"}}, status=500)),)) as served:
        code, _, err, told = bench("--base-url", served.server.base_url, "--request-rate", "100",
                                   "--num-prompts", "6", *SHORT)
    assert (code, told["completed"], told["failed"]) == (3, 0, 6)
    assert told["error_counts_by_kind"] == {"http_status": 6}
    assert told["http_status_counts"] == {"500": 6}
    assert "out of order" in one_line(err)


def test_every_second_request_is_refused(bench: Any) -> None:
    """429 counts by its status; the other half is measured, and nothing is sent twice."""
    busy = (Send(response({"error": "later"}, status=429, headers={"retry-after": "1"})),)
    with Served(of_run(lambda number: answer(wait_s=0) if number % 2 else busy)) as served:
        code, out, _, told = bench("--base-url", served.server.base_url, "--request-rate", "200",
                                   "--num-prompts", "20", *SHORT)
    assert (told["completed"], told["failed"]) == (10, 10)
    assert (told["error_counts_by_kind"], told["http_status_counts"]) == ({"http_status": 10}, {"429": 10})
    assert told["n"]["ttft"] == 10
    assert "10 of 20 requests succeeded" in out
    assert code in (0, 3)


def test_one_stream_that_hangs(bench: Any, tmp_path: Path) -> None:
    """The time limit ends it and counts it; its tokens are kept, and the others go on undisturbed."""
    begun = text("a", token_ids=[7])
    stuck = (Send(stream_head()), Send(chunk(sse(begun))), Wait(0.01), Send(chunk(sse(begun))), Hang())
    with Served(of_run(lambda number: stuck if number == 3 else answer())) as served:
        _, _, _, told = bench(
            "--base-url", served.server.base_url, "--request-rate", "20", "--num-prompts", "20",
            "--request-timeout", "0.4", "--save-detailed", *SHORT)
    assert told["error_counts_by_kind"] == {"timeout_read": 1}
    assert (told["completed"], told["failed"]) == (19, 1)
    assert told["max_tbt_ms"] < 300
    assert told["success"].count(False) == 1
    assert told["output_lens"][told["success"].index(False)] == 2


def test_a_server_that_dies_in_mid_run(bench: Any, tmp_path: Path) -> None:
    """Connections are refused from then on: the run says so, and keeps what was measured before."""
    with Served(of_run(lambda number: answer())) as served:
        def die() -> None:
            while len(served.server.requests) < 12:
                time.sleep(0.005)
            served.stop()

        killer = threading.Thread(target=die)
        killer.start()
        code, _, err, told = bench("--base-url", served.server.base_url, "--request-rate", "20",
                                   "--num-prompts", "40", *SHORT)
        killer.join()
    assert code == 3
    assert "no longer takes connections" in told["engine_failure"]
    assert told["completed"] >= 5
    assert told["error_counts_by_kind"]["connect"] >= 10
    assert one_line(err).startswith("tune: the engine failed: ")
    assert "what was measured is in results/one" in one_line(err)
    assert load_head(tmp_path / "results" / "one")["engine_failure"]


@pytest.fixture
def slow_server() -> Iterator[ScriptedServer]:
    with Served(of_run(lambda number: answer(wait_s=0.05))) as served:
        yield served.server


def test_control_c_keeps_what_was_measured(slow_server: ScriptedServer, tmp_path: Path) -> None:
    """A real process gets SIGINT in mid-run: exit code 130, the result file is whole and marked, and no
    process is left; two workers end with it."""
    command = [sys.executable, "-c", "from tuner.cli.main import main; main()", "bench", "-e", "one",
               "--base-url", slow_server.base_url, "--request-rate", "20", "--num-prompts", "2000", *SHORT]
    with subprocess.Popen([*command, "--workers", "2"], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                          stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "measuring 2000 requests" in line:
                break
        while len(slow_server.requests) < 40:
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(20) == 130, "".join(lines) + rest
    assert one_line(rest) == "tune: interrupted; what was measured is in results/one"
    told = json.loads((tmp_path / "out" / "r.json").read_text(), parse_constant=pytest.fail)
    assert told["valid"] is False
    assert "cut short" in told["invalid_reasons"][0]
    assert 0 < told["completed"] < 2000
    assert load_head(tmp_path / "results" / "one")["validity"]["valid"] is False
    assert len(children) >= 2
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_key_and_headers_are_sent_and_never_kept(bench: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """The server gets them with every request; no file and no line has them, also where the server repeats
    them in an error."""
    key, header = "sk-this-is-a-secret-key", "blue-and-secret"
    monkeypatch.setenv("MY_KEY", key)
    echo = (Send(response({"error": {"message": f"no quota for {key} of {header}"}}, status=403)),)
    with Served(of_run(lambda number: echo if number % 2 else answer(wait_s=0))) as served:
        _, out, err, told = bench(
            "--base-url", served.server.base_url, "--api-key-env", "MY_KEY", "--header", f"x-tenant={header}",
            "--request-rate", "100", "--num-prompts", "10", "--save-detailed", *SHORT)
        asked = [*served.server.requests, *served.server.page_requests]
    assert {request.headers["authorization"] for request in asked} == {f"Bearer {key}"}
    assert {request.headers["x-tenant"] for request in asked} == {header}
    assert told["http_status_counts"] == {"403": 5}
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 4
    for secret in (key, header):
        assert secret not in out + err
        assert not any(secret.encode() in content for content in files)
    assert "no quota for *** of ***" in told["errors"][told["success"].index(False)]
