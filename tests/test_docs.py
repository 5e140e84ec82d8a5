"""README.md and docs/ are true: commands run, examples print what is shown, flags and links exist."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from bench import load_run
from tests.tuner.test_tuning import config, tune
from tuner.calibration import calibrate, save_calibration
from tuner.cli import bench, main, selfcheck

ROOT = Path(__file__).resolve().parent.parent
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
         for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
FOREIGN = {"pip", "python", "vllm"}
"""Programs that are not ours; of `python -m` the module must exist."""
NOT_OURS = {"--scheduling-policy", "--long-prefill-token-threshold-adaptive", "--extra-index-url"}
"""Flags of vLLM and pip that the text names and no command of ours needs to have."""
ROOT_COMMAND: Any = typer.main.get_command(main.app)
OURS = tuple(ROOT_COMMAND.commands)
GROUPS = tuple(name for name, command in ROOT_COMMAND.commands.items() if hasattr(command, "commands"))
"""Commands that are followed by another word, as `tune workload show`."""
A_SERVER = "http://127.0.0.1:8000"
"""Stands in the documents for a server that runs; commands that name it are played against one."""
RUNS_OF_THEIR_OWN = ("cal-512", "cal-2048", "cal-batch", "judge")
"""What the documents call runs of `tune bench`."""
KEY = "a-key-that-nobody-may-save"
SHORTER = {"--num-prompts": "16", "--max-concurrency": "8", "--num-warmups": "2", "--request-rate": "80"}
"""What these flags get then. A run of four minutes shows no more about whether its flags are right."""


@dataclass(frozen=True)
class Block:
    """A fenced block; `info` is what stands behind the opening fence."""

    page: str
    info: str
    text: str


BLOCKS = [Block(page, match[1].strip(), match[2]) for page, text in PAGES.items()
          for match in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)]


def _commands() -> Iterator[tuple[str, str]]:
    """Page and command of every line of an `sh` block, every `$` line of a `console` block, and every
    inline `tune COMMAND …`, `make TARGET` or `python -m …` in the text."""
    for block in BLOCKS:
        lines = block.text.replace("\\\n", " ").splitlines()
        if block.info == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif block.info != "sh":
            continue
        yield from ((block.page, line) for line in lines if line.strip())
    inline = re.compile(rf"`((?:tune (?:{'|'.join(OURS)})|make [a-z]|python -m)[^`…]*)`")
    for page, text in PAGES.items():
        yield from ((page, found) for found in inline.findall(text))


COMMANDS = list(dict.fromkeys(_commands()))
FOR_A_SERVER = [pair for pair in COMMANDS if "tune bench" in pair[1] and A_SERVER in pair[1]]


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, header left out."""
    below = PAGES[page].partition(f"# {heading}\n")[2]
    assert below, f"{page} has no heading {heading!r}"
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None, f"{page} has no table below {heading!r}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def quoted(cells: list[str]) -> list[str]:
    """Everything in backquotes in these cells."""
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def first_column(page: str, heading: str) -> list[str]:
    return quoted([row[0] for row in rows(page, heading)])


def options_of(command: str) -> set[str]:
    chosen = ROOT_COMMAND.commands[command] if command else ROOT_COMMAND
    members = [chosen, *getattr(chosen, "commands", {}).values()] if command else [chosen]
    params = [param for each in members for param in each.params]
    found = {flag for param in params for flag in (*param.opts, *param.secondary_opts)}
    return {flag for flag in found if flag.startswith("-")} | {"--help", "-h"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as the documents assume it: a finished study, and the files that they name."""
    home = tmp_path_factory.mktemp("docs")
    tune(home / "results" / "my-study", config(max_trials=3))
    # A checkpoint without weights stands for the bundled model, which need not be prepared here.
    model = home / "cache" / "stallfree" / "smollm2-135m"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    measured = sorted((home / "results" / "my-study" / "runs").iterdir())
    for run, name in zip(measured, RUNS_OF_THEIR_OWN, strict=False):
        (home / "results" / name).symlink_to(run)
    save_calibration(calibrate([load_run(measured[0])], [measured[0].name]), home / "calibration.json")
    for block in BLOCKS:
        if named := re.search(r"title=(\S+)", block.info):
            (home / named[1]).write_text(block.text)
    return home


@pytest.fixture
def tune_as_told(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a `tune` command line up to where an engine would start; returns code, stdout, stderr."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))

    def not_measured(*arguments: Any, **named: Any) -> None:
        raise typer.Exit(0)

    monkeypatch.setattr(bench, "_measure", not_measured)
    monkeypatch.setattr(selfcheck, "_measure", not_measured)
    return _runner(capsys)


@pytest.fixture
def tune_for_real(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a `tune` command line to its end."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("SERVER_KEY", KEY)
    return _runner(capsys)


def _runner(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(words: list[str]) -> tuple[int, str, str]:
        if words[0] == "run" and "--dry-run" not in words:
            words = [*words, "--dry-run"]
        with pytest.raises(SystemExit) as left:
            main.main(words)
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def a_server() -> Iterator[str]:
    """The address of a fast server of our own, in a process that ends with this test's."""
    with subprocess.Popen(
        [sys.executable, "-m", "engine_adapter.test_servers.paced", "--ttft-ms", "2", "--interval-ms", "1"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://{process.stdout.readline().split()[-1]}"
        finally:
            process.stdin.close()
            process.wait(timeout=10)


def _shorter(words: list[str], server: str) -> list[str]:
    """The same command for that server, with fewer requests and stages of a hundredth of their length."""
    new = [word.replace(A_SERVER, server) for word in words]
    for position, word in enumerate(words):
        if word == "--stages":
            new[position + 1] = re.sub(r"(\d+)s@", lambda hit: f"{int(hit[1]) / 100}s@", words[position + 1])
            new[position + 1] = re.sub(r"(?<=[@.])(\d+)(?=[,.]|$)", r"\g<1>0", new[position + 1])
        elif word in SHORTER and words[position + 1] != "inf":
            new[position + 1] = SHORTER[word]
    return new if "--num-warmups" in words else [*new, "--num-warmups", "2"]


def _expanded(words: list[str]) -> list[str]:
    """Paths with a `*`, as a shell would give them to the command."""
    return [path for word in words for path in (sorted(glob(word)) if "*" in word else [word])]


def _words_for_tune(command: str) -> list[str] | None:
    """What `tune` gets from a command line, through `make tune` too; None for other programs, of which
    the target or the module must exist."""
    program, *rest = (word.removeprefix(".venv/bin/") for word in shlex.split(command, comments=True))
    if program == "make":
        target, *variables = rest
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        flags = " ".join(word.removeprefix("ARGS=") for word in variables)
        return ["run", "--preset", "cpu", *shlex.split(flags)] if target == "tune" else None
    if program in FOREIGN:
        # vLLM is not installed everywhere.
        assert rest[0] != "-m" or rest[1].startswith("vllm.") or find_spec(rest[1]) is not None
        return None
    assert program == "tune"
    # In a sentence a command may stand by its name alone.
    by_name = len(rest) == (2 if rest[0] in GROUPS else 1) and rest[0] != "doctor"
    return [*rest, "--help"] if by_name and rest != ["workload", "formats"] else rest


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_in_the_documents_is_accepted(page: str, command: str, tune_as_told: Any) -> None:
    """`tune` commands run as far as they need no engine; of `make` the target and its flags exist."""
    words = _words_for_tune(command)
    if words is not None and (page, command) not in FOR_A_SERVER:
        code, _, told = tune_as_told(_expanded(words))
        # What the machine lacks is no fault of the document.
        assert code in ((0, 64) if words[0] == "doctor" else (0,)), told


@pytest.mark.parametrize(("page", "command"), FOR_A_SERVER)
def test_commands_for_a_server_measure_one(
    page: str, command: str, tune_for_real: Any, a_server: str, tmp_path: Path
) -> None:
    """They end with a run of which every request succeeded, and keep no key; on a busy machine the client
    may be late."""
    words = _words_for_tune(command)
    assert words is not None
    code, out, told = tune_for_real([*_shorter(words, a_server), "--output-dir", str(tmp_path)])
    assert code == 0 or (code == 3 and "the run is invalid: the client" in told), told
    counted = re.search(r"(\d+) of (\d+) requests succeeded", out)
    assert counted is not None
    assert counted[1] == counted[2] != "0"
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.info == "console"], ids=lambda b: b.page)
def test_shown_output_is_the_real_output(block: Block, tune_as_told: Any) -> None:
    """A console block holds one command, and exactly what it prints."""
    command, _, output = block.text.partition("\n")
    assert tune_as_told(shlex.split(command)[2:])[1] == output


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.info == "python"], ids=lambda b: b.page)
def test_python_examples_run(block: Block, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snippets run as they stand, beside a finished study."""
    monkeypatch.chdir(home)
    exec(compile(block.text, block.page, "exec"), {})


def test_every_block_says_what_it_is() -> None:
    """A block of a kind that no test looks at would rot."""
    looked_at = {"sh", "console", "python", "text", "yaml", "csv"}
    assert {block.info.split()[0] if block.info else "" for block in BLOCKS} <= looked_at
    assert all("title=" in block.info for block in BLOCKS if block.info.startswith(("yaml", "csv")))


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    """Links within the documents lead to files of the checkout."""
    links = re.findall(r"\]\(([^)\s]+)\)", PAGES[page])
    relative = [link for link in links if not link.startswith("https://")]
    missing = [link for link in relative if not ((ROOT / page).parent / link.partition("#")[0]).is_file()]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_every_flag_that_is_named_exists(page: str) -> None:
    """Flags in the text belong to a command of ours, or are among the few of others."""
    ours = set().union(*(options_of(name) for name in ("", *OURS)))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", PAGES[page]))
    assert named <= ours | NOT_OURS


def test_every_page_is_in_the_readme() -> None:
    """A document that the README does not link would not be found."""
    assert {f"({page})" for page in PAGES if page != "README.md"} <= set(
        re.findall(r"\(docs/[^)]+\)", PAGES["README.md"]))
    assert PAGES["README.md"].count("\n") <= 120


def test_the_flags_of_tune_run_are_all_explained() -> None:
    """The table of flags has every option of `tune run` and no other."""
    assert set(first_column("docs/your-own-model.md", "All flags of `tune run`")) == options_of("run")


def test_the_flags_of_tune_simulate_are_all_explained() -> None:
    """The table of flags has every option of `tune simulate` and no other."""
    assert set(first_column("docs/simulator.md", "All flags of `tune simulate`")) == options_of("simulate")


def test_the_flags_of_tune_bench_are_all_explained() -> None:
    """The four tables have every option of `tune bench` once and no other."""
    tables = ("The server", "The load", "How it is judged, and what is kept", "The engine that is started")
    explained = [flag for table in tables for flag in first_column("docs/servers.md", table)]
    assert set(explained) == options_of("bench")
    assert len(explained) == len(set(explained))
