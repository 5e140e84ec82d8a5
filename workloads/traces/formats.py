"""The formats of trace files that can be read, and how their readers say that a row is bad."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal, NoReturn

from workloads.errors import UsageError
from workloads.traces.options import ReadOptions, TimeUnit
from workloads.traces.raw_rows import RawRows

UNREADABLE = "unreadable"
"""Why a row is left out that could not be parsed."""


@dataclass(slots=True)
class BadRows:
    """The rows of one file that cannot be used: refused, or counted, as the user asked."""

    path: Path
    skip: bool
    """Whether they are counted in place of an error."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Rows that were left out, by reason."""

    def add(self, line: int, why: str, kind: str = UNREADABLE) -> None:
        """Counts one row under `kind`; UsageError("FILE:LINE: why") where bad rows are refused."""
        if not self.skip:
            self.refuse(line, why)
        self.count(kind)

    def refuse(self, line: int, why: str) -> NoReturn:
        """UsageError("FILE:LINE: why"), and how such rows can be left out."""
        raise UsageError(f"{self.path}:{line}: {' '.join(why.split())}; --skip-bad-rows leaves such rows out")

    def count(self, kind: str, rows: int = 1) -> None:
        """Counts rows that are left out whatever the user asked."""
        if rows:
            self.rejected[kind] = self.rejected.get(kind, 0) + rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """One format. Its module, named by `module`, has the functions `sniff` and `rows`; it is imported when
    one of them is called."""

    name: str
    title: str
    units: str
    """Its fields and their units in one line."""
    example: str
    """One row as it stands in a file (of a CSV file, below its header)."""
    suffixes: tuple[str, ...]
    module: str
    time_unit: TimeUnit | None = None
    """Of numeric timestamps, unless the options say otherwise; None where the format itself says it."""
    block_size: int | None = None
    """Tokens of a hash block, unless the options say otherwise; None for a format without blocks."""
    lengths: Literal["full", "new"] = "full"
    """What the prompt lengths of later turns are, unless the options say otherwise."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether a file that begins with `head` is probably of this format."""
        sniff: Callable[[bytes, Path], bool] = import_module(self.module).sniff
        return sniff(head, path)

    def rows(self, path: Path, options: ReadOptions, bad: BadRows) -> Iterator[RawRows]:
        """The rows of the file in its order, in pieces of at most PIECE_ROWS. `options` has no None left
        where the format has a default. UsageError for a file that cannot be of this format."""
        rows: Callable[[Path, ReadOptions, BadRows], Iterator[RawRows]] = import_module(self.module).rows
        return rows(path, options, bad)


_ALL = (
    TraceFormat(
        name="azure", title="Azure LLM inference traces of 2023 and 2024 (Microsoft)",
        units="TIMESTAMP date and time in UTC to 100 ns, ContextTokens tokens, GeneratedTokens tokens",
        example="2023-11-16 18:17:03.9799600,4808,10", suffixes=(".csv",), module="workloads.traces.azure"),
    TraceFormat(
        name="burstgpt", title="BurstGPT, releases 1 to 3",
        units="Timestamp s, Request tokens tokens, Response tokens tokens (0 is a failed request), "
        "Log Type is the tenant, Session ID where there is one",
        example="5,ChatGPT,472,18,490,Conversation log", suffixes=(".csv",), time_unit="s",
        module="workloads.traces.burstgpt"),
    TraceFormat(
        name="csv", title="CSV with named columns",
        units="timestamp_s s (or timestamp_ms, _us, _ns, or timestamp as date and time), input_len tokens, "
        "output_len tokens; optional session, turn, think_time_s s, tenant, prefix_group with prefix_len "
        "tokens",
        example="12.5,1020,129", suffixes=(".csv", ".tsv"), module="workloads.traces.named_csv"),
    TraceFormat(
        name="servegen", title="ServeGen client models (Alibaba): requests are drawn, not replayed",
        units="trace: t_s s, rate requests/s, CV, Gamma or Weibull with shape and scale s; "
        "dataset: input_tokens and output_tokens tokens with probabilities",
        example="0,8.34,1.359,Gamma,0.5414,0.2116", suffixes=("-trace.csv", "-dataset.json"),
        module="workloads.traces.servegen"),
    TraceFormat(
        name="mooncake", title="Mooncake traces (FAST'25)",
        units="timestamp ms, input_length tokens, output_length tokens, hash_ids of blocks of 512 tokens",
        example='{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}',
        suffixes=(".jsonl",), time_unit="ms", block_size=512, module="workloads.traces.mooncake"),
    TraceFormat(
        name="timed-trace", title="timed_trace, the dialect of `vllm bench serve`",
        units="timestamp s (ms with blocks of 512), input_length tokens, output_length tokens, hash_ids of "
        "blocks of 16 or 512 tokens, told by their number",
        example='{"timestamp": 0.25, "input_length": 20, "output_length": 8, "hash_ids": [1, 2]}',
        suffixes=(".jsonl",), module="workloads.traces.timed_trace"),
    TraceFormat(
        name="bailian", title="Qwen-Bailian anonymous usage traces (Alibaba)",
        units="timestamp s, input_length tokens, output_length tokens, hash_ids of blocks of 16 tokens, "
        "chat_id, parent_chat_id, turn; type is the tenant",
        example='{"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.11, "input_length": 30, '
        '"output_length": 9, "type": "text", "turn": 1, "hash_ids": [5, 6]}',
        suffixes=(".jsonl",), time_unit="s", block_size=16, module="workloads.traces.bailian"),
    TraceFormat(
        name="sharegpt", title="ShareGPT conversations as JSON: no times, texts need a tokenizer",
        units="conversations of turns `from` and `value`, or messages of `role` and `content` (text, "
        "counted in tokens by --tokenizer)",
        example='[{"id": "a", "conversations": [{"from": "human", "value": "Hi"}, '
        '{"from": "gpt", "value": "Hello"}]}]',
        suffixes=(".json", ".jsonl"), module="workloads.traces.sharegpt"),
    TraceFormat(
        name="vllm-custom", title="custom dataset of `vllm bench serve`: no times, texts need a tokenizer",
        units="prompt (text, counted in tokens by --tokenizer), output_tokens tokens",
        example='{"prompt": "What is a stall?", "output_tokens": 120}', suffixes=(".jsonl",),
        module="workloads.traces.vllm_custom"),
    TraceFormat(
        name="request-log", title="request logs of vLLM and of OpenAI-style gateways",
        units="a time as date and time or Unix time in s, ms, us or ns (told by its size), usage with "
        "prompt_tokens tokens and completion_tokens tokens; rows are sorted by time",
        example='{"timestamp": "2026-05-04T10:00:00.250Z", "usage": {"prompt_tokens": 812, '
        '"completion_tokens": 64}}',
        suffixes=(".jsonl", ".log"), module="workloads.traces.request_log"),
)

FORMATS: Mapping[str, TraceFormat] = {each.name: each for each in _ALL}
"""By name, in the order in which they are listed."""

OTHER_NAMES: Mapping[str, str] = {
    "custom": "vllm-custom", "qwen": "bailian", "qwen-bailian": "bailian", "azure-2023": "azure",
    "azure-2024": "azure", "openai": "request-log", "gateway": "request-log", "log": "request-log",
    "vidur": "csv",
}
"""What else a format is called, as by `vllm bench serve --dataset-name` and by those who published it."""

SNIFF_ORDER = ("servegen", "azure", "burstgpt", "bailian", "mooncake", "timed-trace", "sharegpt",
               "vllm-custom", "request-log", "csv")
"""In which they are tried when no format is named: a file of an earlier one may look like a later one too."""
