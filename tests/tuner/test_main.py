"""The border of the command line: one line on stderr and the exit code of the design."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from engine_adapter.errors import Crashed
from tuner.cli import main as cli
from workloads.errors import EvidenceError, StallfreeError, UsageError


@pytest.fixture
def leave(monkeypatch, capsys):
    """Runs one command line, in which `boom` raises the given error; returns code and stderr."""
    def run(*arguments, raising=None):
        app = typer.Typer()
        app.callback()(cli._global_options)

        @app.command("boom")
        def boom(count: int = 1) -> None:
            if raising is not None:
                raise raising

        monkeypatch.setattr(cli, "app", app)
        with pytest.raises(SystemExit) as left:
            cli.main(list(arguments))
        return left.value.code, capsys.readouterr().err

    monkeypatch.delenv("STALLFREE_DEBUG", raising=False)
    return run


@pytest.mark.parametrize(("error", "code"), [
    (UsageError("say what"), 64), (EvidenceError("too few"), 3), (Crashed("it died"), 3),
    (StallfreeError("odd"), 70), (typer.Exit(2), 2), (KeyboardInterrupt(), 130), (typer.Abort(), 130),
    (None, 0),
])
def test_each_error_has_its_exit_code_and_one_line(leave, error, code):
    """Errors become at most one line without a traceback, and the code the design gives them."""
    left, told = leave("boom", raising=error)
    assert left == code
    assert told.count("\n") <= 1
    if isinstance(error, StallfreeError):
        assert told == f"tune: error: {error}\n"


def test_message_of_several_lines_becomes_one(leave):
    """A foreign reason with line breaks inside a message is still shown as one line."""
    assert leave("boom", raising=UsageError("first\n  second"))[1] == "tune: error: first second\n"


@pytest.mark.parametrize("arguments", [["boom", "--nope"], ["nope"], ["boom", "--count", "x"], []])
def test_wrong_usage_leaves_with_64(leave, arguments):
    """What Typer refuses is wrong usage: one line that points to the help, exit code 64."""
    code, told = leave(*arguments)
    assert code == 64
    assert told.count("\n") == 1
    assert "--help" in told


def test_unexpected_error_keeps_its_traceback_in_a_file(leave, tmp_path, monkeypatch):
    """A bug of ours is one line with exit code 70, which names the file that holds the traceback."""
    monkeypatch.setattr(cli.tempfile, "tempdir", str(tmp_path))
    code, told = leave("boom", raising=ValueError("odd"))
    assert code == 70
    assert told.count("\n") == 1
    (kept,) = tmp_path.iterdir()
    assert str(kept) in told
    assert "ValueError: odd" in kept.read_text()


def test_debug_shows_tracebacks(leave, monkeypatch):
    """With --debug or STALLFREE_DEBUG=1 the traceback is shown, and the exit code stays."""
    monkeypatch.setenv("STALLFREE_DEBUG", "0")
    code, told = leave("--debug", "boom", raising=ValueError("odd"))
    assert (code, "Traceback" in told) == (70, True)
    monkeypatch.setenv("STALLFREE_DEBUG", "1")
    assert "Traceback" in leave("boom", raising=UsageError("say what"))[1]


def test_version_and_help(capsys):
    """`--version` names the distribution; `--help` lists the commands."""
    for flag, expected in (("--version", "stallfree "), ("--help", "doctor")):
        with pytest.raises(SystemExit) as left:
            cli.main([flag])
        assert left.value.code == 0
        assert expected in capsys.readouterr().out


def test_reader_that_leaves_early_is_no_error():
    """When the reader of a pipe goes away, the command ends without a word."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    code = "from tuner.cli.main import main; main(['doctor', '--json'])"
    answer = subprocess.run([sys.executable, "-c", code], stdout=write_end, stderr=subprocess.PIPE,
                            check=False, cwd=Path(cli.__file__).parents[2])
    os.close(write_end)
    assert answer.stderr == b""
    assert answer.returncode == cli.BROKEN_PIPE


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")
@pytest.mark.parametrize("words", [["workload", "formats"], ["workload", "formats", "--json"], ["--help"]])
def test_a_full_disk_behind_standard_output_is_said_in_one_line(words: list[str]) -> None:
    """Exit code 64, as for every output that cannot be written; no traceback."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-c", "from tuner.cli.main import main; main()", *words],
                              stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 64
    assert done.stderr == "tune: error: cannot write to standard output: No space left on device\n"
