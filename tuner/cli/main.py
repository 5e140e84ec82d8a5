"""The command `tune`: its commands, and the border where every error becomes one line and a code.

Command modules hold signatures only and import the rest inside the function, so that
`tune --help` stays quick and loads no engine.
"""

import errno
import os
import sys
import tempfile
import traceback
from importlib import metadata
from typing import Annotated

import typer

from tuner.cli import bench, calibrate, doctor, export, report, run, selfcheck, simulate, workload
from tuner.cli.help_groups import BENCH_GROUPS, RUN_GROUPS, SIMULATE_GROUPS, grouped_help
from workloads.errors import StallfreeError

WRONG_USAGE = 64
INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell reports for a program that its reader left (128 + SIGPIPE)."""
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_NO_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)
"""Of words that stand for a path and cannot be one, wherever in the program that shows."""

app = typer.Typer(
    name="tune",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Find the scheduler settings of an LLM serving engine that carry the most load while no "
         "reader's stream stalls, and prove them on the real engine.",
)
app.command("run", cls=grouped_help(RUN_GROUPS))(run.run)
app.command("bench", cls=grouped_help(BENCH_GROUPS))(bench.bench)
app.command("simulate", cls=grouped_help(SIMULATE_GROUPS))(simulate.simulate)
app.command("calibrate")(calibrate.calibrate)
app.add_typer(workload.app, name="workload")
app.command("report")(report.report)
app.command("export")(export.export)
app.command("selfcheck")(selfcheck.selfcheck)
app.command("doctor")(doctor.doctor)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"stallfree {metadata.version('stallfree')}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks of errors (or set STALLFREE_DEBUG=1).")
    ] = False,
) -> None:
    if debug:
        # Through the environment, so that processes started by a command obey it too.
        os.environ["STALLFREE_DEBUG"] = "1"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0 done, 64 wrong usage, 70 internal
    error, 130 interrupted, or what the command or the error says. `arguments` default to sys.argv."""
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more at its end; let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _no_room(error)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """The exit code of one invocation; what went wrong is said in one line on stderr."""
    # Not app(): in Typer's own main an exit code 2 of a command and a usage error look alike.
    command = typer.main.get_command(app)
    if any("\udc80" <= character <= "\udcff" for word in arguments for character in word):
        return _complain("error: the command line is no valid UTF-8", WRONG_USAGE)
    try:
        with command.make_context("tune", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as left:
        return left.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except StallfreeError as error:
        if _debugging():
            traceback.print_exc()
        return _complain(f"error: {error}", error.exit_code)
    except typer.TyperException as error:
        return _complain(f"error: {error.format_message()}{_help_hint(error)}", WRONG_USAGE)
    except OSError as error:
        if error.errno in _NO_ROOM and error.filename is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _no_room(error)
        if error.errno not in _NO_PATHS or error.filename is None:
            return _internal(error)
        return _complain(f"error: {str(error.filename)[:80]!r} is no path: {error.strerror}", WRONG_USAGE)
    except Exception as error:
        return _internal(error)
    return 0


def _no_room(error: OSError) -> int:
    return _complain(f"error: cannot write to standard output: {error.strerror}", WRONG_USAGE)


def _internal(error: Exception) -> int:
    return _complain(f"internal error: {_describe(error)}. {_keep_traceback()}", INTERNAL_ERROR)


def _complain(text: str, code: int) -> int:
    # What stands in files and paths must not steer the terminal.
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    print(f"tune: {line}", file=sys.stderr)
    return code


def _help_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see `{context.command_path} --help`)" if context is not None else ""


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _debugging() -> bool:
    return os.environ.get("STALLFREE_DEBUG", "") not in ("", "0")


def _keep_traceback() -> str:
    """Show the traceback when debugging, else write it to a file; returns where to find it."""
    if _debugging():
        traceback.print_exc()
        return "The traceback is above."
    try:
        with tempfile.NamedTemporaryFile("w", prefix="tune-traceback-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
    except OSError:
        return "Repeat with --debug before the command to see the traceback."
    return f"The traceback is in {file.name}."
