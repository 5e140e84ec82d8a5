"""Flags about a trace file that several commands share."""

from typing import Annotated, Literal, cast

import typer

from workloads import UsageError
from workloads.traces.options import ReadOptions, window_seconds
from workloads.traces.options import TimeUnit as Unit

Format = Annotated[str | None, typer.Option(
    "--format", "--trace-format", help="See `tune workload formats`. Default: told from the file.")]
TimeUnit = Annotated[str | None, typer.Option(
    "--time-unit", "--trace-time-unit", help="Of its timestamps: s, ms, us or ns. Default: the format's.")]
BlockSize = Annotated[int | None, typer.Option(
    help="Tokens of a hash block. Default: the format's (Mooncake 512, Bailian 16).", min=1)]
LengthsAre = Annotated[str | None, typer.Option(
    "--lengths", help="Whether prompt lengths of later turns are `full`, history included, or only the `new` "
    "tokens. Default: the format's.")]
Columns = Annotated[list[str] | None, typer.Option(
    "--column", metavar="OURS=THEIRS", help="A column that has another name, as in "
    "--column input_len=prompt_tokens; repeatable.")]
Tokenizer = Annotated[str | None, typer.Option(
    "--tokenizer", help="Directory or file of the tokenizer that counts texts (ShareGPT, vLLM custom).")]
MaxModelLen = Annotated[int | None, typer.Option(
    "--max-model-len", help="Most tokens of a prompt and its answer; longer rows are left out and counted.",
    min=2)]
ClipLong = Annotated[bool, typer.Option(
    "--clip-long", help="Cut rows above --max-model-len in place of leaving them out.")]
SkipBad = Annotated[bool, typer.Option(
    "--skip-bad-rows", help="Leave out rows that cannot be used and count them, in place of an error.")]
Window = Annotated[str | None, typer.Option(
    "--window", metavar="FROM..TO", help="Only rows that come within these seconds, as in 600..1200 or "
    "10m..20m.")]
Rows = Annotated[int | None, typer.Option("--rows", help="Only the first so many rows.", min=1)]

def read_options(
    *, time_unit: str | None = None, block_size: int | None = None, lengths: str | None = None,
    columns: list[str] | None = None, tokenizer: str | None = None, max_model_len: int | None = None,
    clip_long: bool = False, skip_bad: bool = False, window: str | None = None, rows: int | None = None,
    seed: int = 0,
) -> ReadOptions:
    """The flags together; UsageError for one that cannot be meant."""
    if time_unit not in (None, "s", "ms", "us", "ns"):
        raise UsageError(f"unknown --time-unit {time_unit!r}; known: s, ms, us, ns")
    if lengths not in (None, "full", "new"):
        raise UsageError(f"unknown --lengths {lengths!r}; known: full, new")
    return ReadOptions(
        max_model_len=max_model_len, too_long="clip" if clip_long else "reject",
        bad_rows="skip" if skip_bad else "refuse", block_size=block_size,
        time_unit=cast(Unit | None, time_unit), lengths=cast(Literal["full", "new"] | None, lengths),
        columns=column_names(columns), tokenizer=tokenizer,
        window_s=None if window is None else window_seconds(window), rows=rows, seed=seed)


def column_names(pairs: list[str] | None) -> dict[str, str]:
    """Their names by ours; UsageError for what is no pair."""
    return dict(map(_column, pairs or ()))


def _column(pair: str) -> tuple[str, str]:
    ours, equals, theirs = (part.strip() for part in pair.partition("="))
    if not (ours and equals and theirs):
        raise UsageError(f"--column {pair!r} is not OURS=THEIRS, as in --column input_len=prompt_tokens")
    return ours, theirs
