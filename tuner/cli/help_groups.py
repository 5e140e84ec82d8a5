"""`--help` of the commands with many flags: in groups, with every name whole at 80 columns."""

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

_WORKLOAD = ("preset", "workload")
_TRACE = ("trace", "trace_format", "trace_time_scale", "trace_time_unit", "trace_window", "trace_block_size",
          "trace_column", "scale_lengths", "spread_ticks", "clip_long", "skip_bad_rows")
_SERVER = ("base_url", "host", "port", "backend", "endpoint", "api_key_env", "api_key_file", "header",
           "extra_body", "ignore_eos", "tokenizer", "text_prompts", "ca_file", "insecure", "control_block",
           "server", "server_command", "server_ready_timeout", "request_timeout")
_ENGINE = ("max_model_len", "dtype", "enforce_eager", "kv_cache_memory_bytes", "gpu_memory_utilization",
           "tensor_parallel_size", "engine_arg")
_KNOBS = ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold",
          "long_prefill_token_threshold_adaptive", "scheduling_policy")
_LOAD = ("input_len", "output_len", "random_range_ratio", "request_rate", "burstiness", "max_concurrency",
         "stages", "num_prompts", "duration", "num_warmups", "seed")
_RESULT_FILE = ("save_result", "save_detailed", "result_dir", "result_filename", "label", "metadata")
_DEADLINES = ("decode_deadline_ms", "prefill_slack_ms")
_WHERE = ("output_dir", "experiment_name")

RUN_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Load": (*_WORKLOAD, "rate", "burstiness", "run_seconds", "seed"),
    "Trace, in place of a drawn load": _TRACE,
    "Objectives": ("slo", *_DEADLINES),
    "Search": ("token_budget", "max_num_seqs", "long_prefill_token_threshold", "num_trials", "max_minutes",
               "resume", "dry_run"),
    "Model and engine": ("model", *_ENGINE),
    "Server, instead of the embedded engine": _SERVER,
    "Simulation, instead of any engine": ("engine", "hardware", "pipeline_parallel_size", "num_kv_blocks",
                                          "enable_prefix_caching", "async_scheduling"),
    "Output": (*_WHERE, "as_json"),
}
BENCH_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Load": (*_WORKLOAD, *_LOAD, "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps", "workers"),
    "Trace, in place of a drawn load": _TRACE,
    "Server, instead of the embedded engine": _SERVER,
    "Model and engine": ("model", *_KNOBS, "config", *_ENGINE),
    "Objectives": ("slo", "goodput", "fluidity", *_DEADLINES, "prefill_curve"),
    "Output": (*_WHERE, *_RESULT_FILE, "as_json"),
}
SIMULATE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Load": ("workload", "preset", *_LOAD),
    "Trace, in place of a drawn load": _TRACE,
    "Machine and model": ("hardware", "model", "list_sheets", "tensor_parallel_size",
                          "pipeline_parallel_size", "dtype", "max_model_len", "num_kv_blocks", "block_size",
                          "gpu_memory_utilization", "enable_prefix_caching", "async_scheduling",
                          "num_speculative_tokens", "draft_acceptance", "watermark"),
    "Settings": ("knobs", "policy", *_KNOBS),
    "Objectives": ("slo", "goodput", *_DEADLINES, "prefill_curve"),
    "Output": (*_WHERE, *_RESULT_FILE, "as_json"),
}
MAKE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Output": ("output", "output_format", "token_ms", "as_json"),
    "Load": ("request_rate", "num_prompts", "duration", "stages", "burstiness", "seed"),
    "How a trace is read": ("form", "time_unit", "block_size", "lengths", "column", "tokenizer",
                            "max_model_len", "clip_long", "skip_bad_rows"),
    "What is made of it": ("window", "rows", "time_scale", "scale_lengths", "spread_ticks", "keep",
                           "overlay"),
}
SHOW_GROUPS: Mapping[str, tuple[str, ...]] = {
    "How a trace is read": ("form", "time_unit", "block_size", "lengths", "column", "tokenizer",
                            "max_model_len", "clip_long", "skip_bad_rows", "window", "rows"),
    "The plan of a workload": ("request_rate", "duration", "seed"),
    "Output": ("decode_deadline_ms", "output", "as_json"),
}
"""Names of parameters by the heading under which they are shown."""


def grouped_help(groups: Mapping[str, tuple[str, ...]]) -> type[TyperCommand]:
    """A command that shows its flags under these headings, in this order; what is in none comes last."""

    class GroupedHelp(TyperCommand):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            # Typer's panels cut long names off at 80 columns.
            super().__init__(*arguments, **{**named, "rich_markup_mode": None})

        def format_options(self, ctx: Any, formatter: Any) -> None:
            records = {param.name: record for param in self.get_params(ctx)
                       if (record := param.get_help_record(ctx)) is not None}
            grouped = {heading: [name for name in names if name in records]
                       for heading, names in groups.items()}
            listed = {name for names in grouped.values() for name in names}
            grouped["Other"] = [str(name) for name in records if name not in listed]
            for heading, names in grouped.items():
                if names:
                    with formatter.section(heading):
                        formatter.write_dl([records[name] for name in names], col_max=28)

    return GroupedHelp
