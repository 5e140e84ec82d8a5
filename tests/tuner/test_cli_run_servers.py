"""`tune run` over servers: a whole search over a command, a capacity, keys, and what is refused at once."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from engine_adapter.test_servers.fixture import text
from engine_adapter.test_servers.script import Script, Send, streamed
from engine_adapter.test_servers.scripted import ScriptedRequest
from engine_adapter.test_servers.wire import response
from tests.tuner.served import Served
from tuner.cli.main import main

WORKLOAD = """
name: short
description: Short prompts and answers.
warmup_seconds: 0.2
run_seconds: 1
slo: ["tbt:p99<=25ms"]
decode_deadline_ms: 60
prefill_slack_ms: 300
max_model_len: 64
components:
  - {name: all, weight: 1, input: {kind: fixed, tokens: 16}, output: {kind: fixed, tokens: 4}}
"""
PACED = (f"{shlex.quote(sys.executable)} -m engine_adapter.test_servers.paced --port {{port}} "
         "--interval-ms {token_budget} --ttft-ms {max_seqs}")
"""A server whose gaps are as many milliseconds as its budget has tokens."""
RUN = ("run", "--workload", "w.yaml")
URL = "http://127.0.0.1:1"
SEARCH = ("--token-budget", "10,40", "--max-num-seqs", "5")


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `tune` in a directory with w.yaml; returns code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "w.yaml").write_text(WORKLOAD)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    return run


def paced_processes() -> list[str]:
    """Command lines of the paced servers that this process started and that still run."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            told = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = (directory / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if "test_servers.paced" in told and parent == str(os.getpid()):
            found.append(told)
    return found


def test_a_search_over_a_command_starts_it_for_each_setting(tune: Any, tmp_path: Path) -> None:
    """The setting that holds is recommended with its command and proved; the largest one is the default; no
    server is left."""
    code, out, err = tune(*RUN, "--server-command", PACED, *SEARCH, "--rate", "40", "--num-trials", "2",
                          "-e", "s", "--json")
    result = json.loads(out)
    assert (code, result["verdict"]) == (0, "recommended"), err
    assert "budget 10, 5 seqs carries 40 req/s" in result["verdict_text"]
    assert result["recommended"]["knobs"]["token_budget"] == 10
    assert result["default"]["knobs"]["token_budget"] == 40
    assert not result["default"]["confirmed"]["holds"]
    assert result["recommended"]["serve_command"].endswith("--interval-ms 10 --ttft-ms 5")
    assert result["recommended"]["effective_knobs"] == result["recommended"]["knobs"]
    assert {trial["knobs"]["long_prefill_token_threshold"] for trial in result["trials"]} == {0}
    assert any("largest values" in warning for warning in result["warnings"])
    assert len(list((tmp_path / "results/s/logs").glob("engine-*.log"))) == result["engine_starts"]
    assert paced_processes() == []
    code, out, _ = tune("report", "results/s", "--format", "md")
    assert code == 0
    assert "vllm serve --config" not in out


def test_a_command_without_fields_has_a_capacity(tune: Any, tmp_path: Path) -> None:
    """Its settings cannot be changed: whether it holds at a rate is found out, with one start."""
    command = PACED.replace("{token_budget}", "10").replace("{max_seqs}", "5")
    code, out, err = tune(*RUN, "--server-command", command, "--rate", "40", "-e", "s", "--json")
    result = json.loads(out)
    assert (code, result["verdict"]) == (0, "confirmed"), err
    assert (result["rate_rps"], result["engine_starts"]) == (40, 1)
    assert result["server"]["command"] == command
    assert "starting the server" in err
    assert paced_processes() == []


KEY, HEADER = "sk-this-is-a-secret-key", "blue-and-secret"


def quick(request: ScriptedRequest) -> Script:
    """As many tokens as are asked for, at once; nothing without the key and the header."""
    if request.path != "/v1/completions":
        return (Send(response({"error": "no such path"}, status=404)),)
    given = request.headers.get("authorization"), request.headers.get("x-tenant")
    if given != (f"Bearer {KEY}", HEADER):
        return (Send(response({"error": f"who are you, {given}?"}, status=401)),)
    return tokens_at_once(request.json()["max_tokens"])


def tokens_at_once(tokens: int) -> Script:
    """So many, a message each, nearly at once."""
    last = tokens - 1
    return streamed([text("a", "length" if n == last else None, token_ids=[7]) for n in range(tokens)],
                    gap_s=0.001)


def test_key_and_headers_are_never_kept_and_are_given_again_to_resume(
    tune: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file and no line has them; a study goes on only with them, and shows its end without a server."""
    monkeypatch.setenv("MY_KEY", KEY)
    told = []
    secrets = ("--api-key-env", "MY_KEY", "--header", f"x-tenant={HEADER}")
    with Served(quick) as served:
        url = served.server.base_url
        asked = (*RUN, "--base-url", url, "--rate", "40", "-e", "s")
        code, out, err = tune(*asked, "--max-minutes", "0.1", *secrets)
        assert code == 2, err  # no time for a run
        told += [out, err]
        code, out, err = tune("run", "--resume", "-e", "s", "--max-minutes", "5", "--api-key-env", "MY_KEY")
        assert code == 64
        assert "--header x-tenant=VALUE" in err
        told += [out, err]
        code, out, err = tune("run", "--resume", "-e", "s", "--max-minutes", "5", *secrets[2:])
        assert code == 64
        assert "refuses the key" in err
        told += [out, err]
        code, out, err = tune("run", "--resume", "-e", "s", "--max-minutes", "5", *secrets)
        result = json.loads((tmp_path / "results/s/capacity.json").read_text())
        assert (code, result["verdict"]) in ((0, "confirmed"), (3, "no_evidence")), err
        assert f"connecting to {url}" in out
        told += [out, err]
    if code == 0:
        code, out, err = tune("run", "--resume", "-e", "s", *secrets)
        assert (code, json.loads((tmp_path / "results/s/capacity.json").read_text())["verdict"]) == (
            0, "confirmed"), err
        told += [out, err]
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert (tmp_path / "results/s/report.html").exists()
    for secret in (KEY, HEADER):
        assert not [line for line in told if secret in line]
        assert not any(secret.encode() in content for content in files)


def test_control_c_leaves_a_search_that_can_go_on(tune: Any, tmp_path: Path) -> None:
    """Exit code 130, the command that goes on, and what was known until then."""
    of_the_run: list[int] = []

    def choose(request: ScriptedRequest) -> Script:
        tokens = request.json()["max_tokens"] if request.path == "/v1/completions" else 1
        of_the_run.extend([request.number] if tokens == 4 else [])
        if len(of_the_run) == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return tokens_at_once(tokens)

    with Served(choose) as served:
        code, out, err = tune(*RUN, "--base-url", served.server.base_url, "--rate", "100",
                              "--run-seconds", "9", "-e", "s")
    assert code == 130, err
    assert "Traceback" not in out + err
    assert "Go on with: tune run --resume -o results -e s" in out
    result = json.loads((tmp_path / "results/s/capacity.json").read_text())
    assert (result["verdict"], result["runs"]) == ("unfinished", [])
    assert json.loads((tmp_path / "results/s/study.json").read_text())["state"]["deadlines"]


def test_a_server_that_cannot_be_reached_is_one_line(tune: Any) -> None:
    """Exit code 3, and what to do."""
    code, _, err = tune(*RUN, "--base-url", URL, "-e", "s")
    assert code == 3
    assert err.splitlines()[-1].startswith(f"tune: error: no server answers at {URL}")
    assert "Traceback" not in err


BENCH = ("bench", "--input-len", "16", "--output-len", "4", "--request-rate", "9", "--num-prompts", "4")
BOTH = [
    (("--base-url", URL, "--port", "8000"), "either --base-url or"),
    (("--host", "127.0.0.1"), "--host needs --port"),
    (("--base-url", "127.0.0.1:8000"), "is no address"),
    (("--base-url", "http://me:pass@127.0.0.1:1"), "must not hold a password"),
    (("--base-url", f"{URL}?a=b"), "leave out ? and #"),
    (("--base-url", URL, "--backend", "nope"), "unknown --backend"),
    (("--base-url", URL, "--header", "novalue"), "KEY=VALUE"),
    (("--base-url", URL, "--header", "a:b=c"), "no valid header"),
    (("--base-url", URL, "--extra-body", "{"), "not valid JSON"),
    (("--base-url", URL, "--extra-body", "[1]"), "JSON object"),
    (("--base-url", URL, "--extra-body", '{"stream": false}'), "must not set stream"),
    (("--base-url", URL, "--extra-body", '{"n": 2}'), "one answer for each prompt"),
    (("--base-url", URL, "--api-key-env", "NOT_SET_AT_ALL"), "that variable is not set"),
    (("--base-url", URL, "--api-key-file", "none"), "cannot read the key"),
    (("--base-url", URL, "--api-key-file", "w.yaml"), "one key and nothing else"),
    (("--base-url", URL, "--api-key-file", "w.yaml", "--api-key-env", "HOME"), "either --api-key-env or"),
    (("--base-url", URL, "--ca-file", "none.pem"), "none.pem does not exist"),
    (("--base-url", URL, "--max-model-len", "64"), "leave out --max-model-len"),
    (("--base-url", URL, "--engine-arg", "a=b"), "leave out --engine-arg"),
    (("--base-url", URL, "--control-block", "none"), "--control-block none does not exist"),
    (("--base-url", URL, "--server", "vllm"), "leave out --base-url"),
    (("--base-url", URL, "--server-command", "srv {port}"), "leave the port out"),
    (("--control-block", "w.yaml", "--model", "."), "name it with --base-url"),
    (("--backend", "openai-chat"), "--backend: only for a server that runs already"),
    (("--header", "a=b", "--insecure"), "--header, --insecure: only for a server"),
    (("--server", "sglang"), "known: vllm"),
    (("--server", "vllm", "--server-command", "srv {port}"), "leave out --base-url and --server-command"),
    (("--server-command", "srv"), "does not mention {port}"),
    (("--server-command", ""), "is empty"),
    (("--server-command", "srv '{port}"), "close its quotes"),
    (("--server-command", "srv {prot}"), "no field {prot}"),
    (("--server-command", "srv {port} {model}"), "give --model"),
    (("--server-command", "srv {port}", "--dtype", "auto"), "leave out --dtype"),
    (("--server-command", "srv {port}", "--control-block", "w.yaml"), "leave out --control-block"),
]


@pytest.mark.parametrize(("arguments", "told"), [
    *((RUN + flags, told) for flags, told in BOTH), *((BENCH + flags, told) for flags, told in BOTH),
    ((*RUN, "--base-url", URL, "--token-budget", "64"), "leave out --token-budget"),
    ((*RUN, "--base-url", URL, "--max-num-seqs", "8"), "leave out --max-num-seqs"),
    ((*RUN, "--server-command", "srv {port}", "--token-budget", "64"), "leave out --token-budget"),
    ((*RUN, "--server-command", "srv {port} {token_budget}", *SEARCH), "must mention {max_seqs} too"),
    ((*RUN, "--server-command", "srv {port} {long_prefill_token_threshold}"), "must mention {token_budget}"),
    ((*RUN, "--server-command", PACED), "say with --token-budget"),
    ((*RUN, "--server-command", PACED, "--token-budget", "64"), "say with --max-num-seqs"),
    ((*RUN, "--server-command", PACED, "--token-budget", "8", "--max-num-seqs", "4,16"), "16 is above every"),
    ((*RUN, "--server-command", PACED, *SEARCH, "--long-prefill-token-threshold", "8"), "has no field"),
    ((*RUN, "--server-command", PACED, "--token-budget", "x", "--max-num-seqs", "4"), "cannot read 'x'"),
    ((*BENCH, "--base-url", URL, "--max-num-seqs", "8"), "leave out --max-num-seqs"),
    ((*BENCH, "--base-url", URL, "--config", "w.yaml"), "leave out --config"),
    ((*BENCH, "--server-command", "srv {port} {token_budget}"), "give that flag"),
    ((*BENCH, "--server-command", "srv {port}", "--max-num-seqs", "8"), "add it there"),
    ((*BENCH, "--model", ".", "--workers", "2"), "--workers needs a server"),
    ((*BENCH, "--base-url", URL, "--stages", "5s@1"), "--request-rate and --stages"),
    ((*BENCH, "--base-url", URL, "--ramp-up-strategy", "linear"), "a ramp needs all of"),
    ((*BENCH[:5], "--base-url", URL, "--stages", "nonsense"), "stage"),
    ((*BENCH[:5], "--base-url", URL, "--max-concurrency", "4"), "--request-rate"),
    ((*BENCH, "--base-url", URL, "--max-concurrency", "0"), "--max-concurrency"),
])
def test_contradictions_are_refused_before_anything_starts(
    tune: Any, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    """Exit code 64 and one line that says what to change; nothing is written, nobody is asked."""
    code, out, err = tune(*arguments)
    assert (code, out) == (64, ""), err
    assert err.count("\n") == 1
    assert told in err
    assert [path.name for path in tmp_path.iterdir()] == ["w.yaml"]


def test_a_header_that_is_refused_is_not_repeated(tune: Any) -> None:
    """It may hold a secret."""
    _, _, err = tune(*RUN, "--base-url", URL, "--header", "sk-secret")
    assert "sk-secret" not in err


@pytest.mark.parametrize(("flags", "lines"), [
    (("--base-url", URL), ("server     http://127.0.0.1:1", "model      the one that the server lists",
                           "none is started: the server runs already", "settings of this server cannot be")),
    (("--base-url", URL, "--control-block", "w.yaml", "--model", "m"), (
        "model      m", "settings of the running server are changed, and put back", "trials     12")),
    (("--server-command", PACED, *SEARCH), (
        "{token_budget}", "budgets    (10, 40)", "sequences  (5,)", "up to 15 starts")),
    (("--server-command", "srv {port}", "--rate", "3"), (
        "command    srv {port}", "whether the SLO holds at 3 req/s", "engines    1 start")),
])
def test_the_plan_says_what_would_be_done(
    tune: Any, tmp_path: Path, flags: tuple[str, ...], lines: tuple[str, ...]
) -> None:
    """--dry-run fits the kind of server, and starts and writes nothing."""
    code, out, err = tune(*RUN, *flags, "--dry-run")
    assert (code, err) == (0, "")
    assert [line for line in lines if line not in out] == []
    assert [path.name for path in tmp_path.iterdir()] == ["w.yaml"]


@pytest.mark.parametrize("again", [("--base-url", URL), ("--server", "vllm"), ("--no-ignore-eos",),
                                   ("--tokenizer", "x"), ("--insecure",)])
def test_a_resumed_study_knows_its_server(tune: Any, again: tuple[str, ...]) -> None:
    """Another server, or other words to it, would make two studies of one."""
    assert tune(*RUN, "--base-url", URL, "-e", "s")[0] == 3
    code, _, err = tune("run", "--resume", "-e", "s", *again)
    assert code == 64
    assert "leave out --" in err
