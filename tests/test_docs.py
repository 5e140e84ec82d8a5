"""README.md and docs/ are true: commands run, flags and presets exist, lists equal the code's."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from bench import CATALOG, Outcome, validity
from tests.tuner.test_tuning import config, tune
from tuner import one_run, recommendation
from tuner.cli import bench, main
from tuner.dry_run import plan_lines
from tuner.slo import parse_objective
from tuner.study import StudyConfig
from tuner.trial import Outcome as TrialOutcome
from workloads import PRESETS, UsageError, load_workload

ROOT = Path(__file__).resolve().parent.parent
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
         for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
FOREIGN = {"pip", "python", "vllm"}
"""Programs that are not ours; of `python -m` the module must exist."""
NOT_OURS = {"--scheduling-policy", "--long-prefill-token-threshold-adaptive", "--extra-index-url"}
"""Flags of vLLM and pip that the text names and no command of ours needs to have."""
UNITS = {"ns": "time", "fraction": "share", "per_s": "per second", "count": "count"}


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
    inline = re.compile(r"`((?:tune (?:run|bench|report|doctor)|make [a-z]|python -m)[^`…]*)`")
    for page, text in PAGES.items():
        yield from ((page, found) for found in inline.findall(text))


COMMANDS = list(dict.fromkeys(_commands()))


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
    root: Any = typer.main.get_command(main.app)
    chosen = root.commands[command] if command else root
    found = {flag for param in chosen.params for flag in (*param.opts, *param.secondary_opts)}
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
    for block in BLOCKS:
        if named := re.search(r"title=(\S+)", block.info):
            (home / named[1]).write_text(block.text)
    return home


@pytest.fixture
def tune_as_told(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a `tune` command line up to where an engine would start; returns code, stdout, stderr."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))

    def not_measured(*arguments: Any) -> None:
        raise typer.Exit(0)

    monkeypatch.setattr(bench, "_measure", not_measured)

    def run(words: list[str]) -> tuple[int, str, str]:
        if words[0] == "run" and "--dry-run" not in words:
            words = [*words, "--dry-run"]
        with pytest.raises(SystemExit) as left:
            main.main(words)
        assert isinstance(left.value.code, int)
        return left.value.code, *capsys.readouterr()

    return run


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
    return [*rest, "--help"] if len(rest) == 1 and rest[0] != "doctor" else rest


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_in_the_documents_is_accepted(page: str, command: str, tune_as_told: Any) -> None:
    """`tune` commands run as far as they need no engine; of `make` the target and its flags exist."""
    words = _words_for_tune(command)
    if words is not None:
        code, _, told = tune_as_told(words)
        # What the machine lacks is no fault of the document.
        assert code in ((0, 64) if words[0] == "doctor" else (0,)), told


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
    ours = set().union(*(options_of(name) for name in ("", "run", "bench", "report", "doctor")))
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


def test_presets_and_their_durations_are_the_codes() -> None:
    """Both tables list every preset; SLO, deadline, run length and expected duration are as computed."""
    assert set(first_column("docs/workloads.md", "Presets")) == set(PRESETS)
    for name, *_, slo, deadline, seconds in rows("docs/workloads.md", "Presets"):
        load = load_workload(name.strip("`"))
        assert (slo, deadline, seconds) == (
            ", ".join(load.slo), f"{load.decode_deadline_ms:g} ms", f"{load.run_seconds:g} s")
    expected = rows("docs/your-own-model.md", "How long it takes")
    assert {name.strip("`") for name, _ in expected} == set(PRESETS)
    for name, minutes in expected:
        load = load_workload(name.strip("`"))
        asked = StudyConfig(
            workload=load, slo=load.slo, launch=config().launch, decode_deadline_ms=load.decode_deadline_ms,
            prefill_slack_ms=load.prefill_slack_ms, run_seconds=load.run_seconds,
            warmup_seconds=load.warmup_seconds)
        assert f"duration   about {minutes}" in plan_lines(asked, Path("x"))


def test_the_table_of_metrics_is_the_catalog() -> None:
    """Name, unit, direction, population, statistics and definition of every metric."""
    assert rows("docs/metrics.md", "All metrics") == [
        [f"`{m.name}`", UNITS[m.unit], m.better, m.population, ", ".join(m.statistics) or "none",
         m.definition] for m in CATALOG.values()]


def test_the_limits_of_validity_are_the_codes() -> None:
    """The figures that make a run invalid, or are noted, are those that are applied."""
    share = f"{validity.LAG_SHARE:.0%}".replace("%", " %")
    limits = [row[1] for row in rows("docs/metrics.md", "When a run is invalid")]
    assert limits[:3] == [
        f"the largest of {validity.LAG_FLOOR_NS / 1e6:g} ms, {share} of the median TTFT, {share} of the mean "
        f"time between arrivals",
        f"the larger of {validity.LATE_READ_FLOOR_NS / 1e6:g} ms and "
        f"{validity.LATE_READ_SHARE_OF_TTFT * 100:g} % of the median TTFT",
        f"at least {validity.MIN_ACHIEVED_RATE * 100:g} % of the planned rate",
    ]
    assert f"fewer than {validity.FEW_REQUESTS} requests; more than " \
           f"{validity.SHORT_ANSWERS_SHARE * 100:g} % of the answers" in PAGES["docs/metrics.md"]


def test_objectives_in_the_documents_are_read_and_refused_as_they_say() -> None:
    """Accepted forms have the canonical spelling shown; refused ones answer with the sentence shown."""
    for written, canonical in rows("docs/slo.md", "Accepted"):
        assert str(parse_objective(written.strip("`"))) == canonical.strip("`")
    for written, answer in rows("docs/slo.md", "Refused"):
        with pytest.raises(UsageError) as refused:
            parse_objective(written.strip("`"))
        assert str(refused.value) == answer


def test_exit_codes_are_the_codes() -> None:
    """Every exit code has its row and every verdict its code."""
    known = {*recommendation.EXIT_CODES.values(), one_run.MISSED, one_run.INVALID, one_run.INTERRUPTED,
             main.WRONG_USAGE, main.INTERNAL_ERROR, main.INTERRUPTED, main.BROKEN_PIPE}
    assert [int(row[0]) for row in rows("docs/exit-codes.md", "Exit codes")] == sorted(known)
    verdicts = rows("docs/exit-codes.md", "Verdicts of `tune run`")
    assert {name.strip("`"): int(code) for name, code, _ in verdicts} == recommendation.EXIT_CODES


def test_the_files_of_a_study_are_all_described(home: Path) -> None:
    """What a study leaves is in the table; the command line adds the report and the logs."""
    present = {path.name for path in (home / "results" / "my-study").iterdir() if path.name != "report.html"}
    page = "docs/files.md"
    assert set(first_column(page, "A study: `results/NAME/`")) == present | {"report.html", "logs"}
    result = json.loads((home / "results/my-study/recommendation.json").read_text())
    assert set(first_column(page, "`recommendation.json`")) == set(result)
    assert set(first_column(page, "A setting")) == set(result["recommended"])
    assert set(first_column(page, "A trial")) == set(result["trials"][0])
    named = next(row[1] for row in rows(page, "A trial") if row[0] == "`outcome`")
    assert quoted([named]) == [outcome.value for outcome in TrialOutcome]


def test_the_files_of_a_run_are_all_described(home: Path) -> None:
    """Files, columns of the tables and codes of outcomes are those that are written."""
    run = home / "results/my-study/runs/001-scout"
    assert set(first_column("docs/files.md", "A run")) == {path.name for path in run.iterdir()}
    for table in sorted(run.glob("*.parquet")):
        assert first_column("docs/files.md", f"`{table.name}`") == pq.read_schema(table).names
    (codes,) = (row[1] for row in rows("docs/files.md", "`requests.parquet`") if row[0] == "`outcome`")
    assert codes == ", ".join(f"{code.value} {code.name.lower()}" for code in Outcome)
