"""From the flags of `tune simulate` to what is simulated: settings, machine, load and objectives."""

from pathlib import Path
from typing import Any

import typer

from tuner.cli import bench_options as flags
from tuner.knobs_asked import KnobsAsked
from tuner.knobs_text import SettingAsked, parse_policy, parse_setting
from tuner.prefill_reference import load_prefill_curve
from tuner.simulate import SimulationSpec
from tuner.simulation import SimulationTarget, is_calibration, target_from
from workloads import Plan, UsageError, Workload


def settings_asked(texts: list[str] | None, policy: str | None, knobs: KnobsAsked) -> list[SettingAsked]:
    """Every setting of --knobs, or the one of the single flags; these hold for all of them."""
    by_policy = parse_policy(policy, knobs.policy)
    given = knobs.given() | by_policy.knobs.given()
    base = SettingAsked(KnobsAsked(**given), by_policy.rule)
    return [parse_setting(text).over(base) for text in texts or ()] or [base]


def target_of(hardware: str | None, model: str | None, facts: dict[str, Any]) -> SimulationTarget:
    """The engine that is simulated; UsageError where the hardware is not named, or is a JSON file that is
    something else, and where flags contradict. Beside a calibration a model is left aside, with a warning."""
    if hardware is None:
        raise UsageError("say what to simulate with --hardware: a sheet (see `tune simulate --list-sheets`), "
                         "or the file of `tune calibrate`")
    calibrated = is_calibration(Path(hardware))
    if model is None and not calibrated and hardware.endswith(".json"):
        why = "is no calibration" if Path(hardware).exists() else "does not exist"
        raise UsageError(f"{hardware} {why}: give the file that `tune calibrate` wrote, or a sheet and its "
                         f"--model")
    if calibrated and model is not None:
        typer.echo(f"tune: warning: --model {model} is left aside: {hardware} is of an engine with its model",
                   err=True)
        model = None
    return target_from(hardware=hardware, model=model,
                       **{name: value for name, value in facts.items() if value is not None})


def spec_of(load: Workload, plan: Plan, *, burstiness: float | None, slo: list[str] | None,
            goodput: list[str] | None, decode_deadline_ms: float | None, prefill_slack_ms: float | None,
            prefill_curve: str | None, max_concurrency: int | None, draft_acceptance: float | None,
            label: str | None, metadata: list[str] | None) -> SimulationSpec:
    """What is played and how it is judged; what was left out is the workload's own."""
    rules = flags.goodput_rules(goodput)
    decode_ms = load.decode_deadline_ms if decode_deadline_ms is None else decode_deadline_ms
    slack_ms = load.prefill_slack_ms if prefill_slack_ms is None else prefill_slack_ms
    return SimulationSpec(
        workload=load, plan=plan, burstiness=load.burstiness if burstiness is None else burstiness,
        slo=flags.slo_of(slo, load, fluidity=True, goodput=rules), slo_is_asked=bool(slo), goodput=rules,
        decode_deadline_ms=flags.within("--decode-deadline-ms", decode_ms, 0.001, 1e7),
        prefill_slack_ms=flags.within("--prefill-slack-ms", slack_ms, 0, 1e7),
        prefill_curve=None if prefill_curve is None else load_prefill_curve(Path(prefill_curve)),
        max_concurrency=max_concurrency,
        draft_acceptance=0.0 if draft_acceptance is None else flags.within(
            "--draft-acceptance", draft_acceptance, 0, 1),
        label=label, metadata=flags.metadata_of(metadata))
