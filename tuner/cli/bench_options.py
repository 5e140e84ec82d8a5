"""From the flags of `tune bench` to what is measured: workload, plan, engine, objectives."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench import GoodputRules
from engine_adapter.http.target import HttpTarget
from engine_adapter.vllm_launch import VllmLaunch
from tuner.cli.engine_options import launch_from_options
from tuner.engines import EngineSource
from tuner.knobs_asked import KnobsAsked
from tuner.slo import Slo, parse_slo
from workloads import (
    Plan,
    RateProfile,
    UsageError,
    Workload,
    build_plan,
    load_workload,
    parse_stages,
)

_NEED_CURVE = ("fluidity", "stall", "stalled_requests")
_INPUT_LEN, _OUTPUT_LEN = 1024, 128
"""The random data set's defaults in `vllm bench serve`."""


def workload_of(preset: str | None, file: str | None, input_len: int | None, output_len: int | None,
                range_ratio: float | None) -> Workload:
    """The workload of exactly one of: a preset, a file, lengths; UsageError otherwise."""
    by_lengths = not (input_len is None and output_len is None and range_ratio is None)
    if (preset is not None) + (file is not None) + by_lengths != 1:
        raise UsageError("say what to send with exactly one of --preset NAME, --workload FILE, or "
                         "--input-len and --output-len")
    if by_lengths:
        return Workload.from_lengths(
            _INPUT_LEN if input_len is None else input_len,
            _OUTPUT_LEN if output_len is None else output_len, range_ratio or 0.0)
    return load_workload(preset or file or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAsked:
    """The flags about how much is sent, and when."""

    rate: float | None
    num_prompts: int | None
    duration: float | None
    num_warmups: int | None
    burstiness: float | None
    seed: int
    max_concurrency: int | None = None
    stages: str | None = None
    ramp_strategy: str | None = None
    ramp_start_rps: float | None = None
    ramp_end_rps: float | None = None

    def profile(self) -> RateProfile | None:
        """The rate over time, where it changes; UsageError for flags that contradict one another."""
        ramp = (self.ramp_strategy, self.ramp_start_rps, self.ramp_end_rps)
        ramps = [value is not None for value in ramp]
        if any(ramps) and not all(ramps):
            raise UsageError("a ramp needs all of --ramp-up-strategy, --ramp-up-start-rps and "
                             "--ramp-up-end-rps")
        flags = {"--request-rate": self.rate is not None, "--stages": self.stages,
                 "--ramp-up-strategy": any(ramps)}
        given = [flag for flag, there in flags.items() if there]
        if len(given) > 1:
            raise UsageError(f"give the rate with one of {' and '.join(given)}")
        if self.stages is not None:
            return parse_stages(self.stages)
        if self.ramp_strategy is None or self.ramp_start_rps is None or self.ramp_end_rps is None:
            return None
        if (self.num_prompts is None) == (self.duration is None):
            raise UsageError("give the length of the ramp as either --num-prompts or --duration")
        return RateProfile.ramp(self.ramp_strategy, self.ramp_start_rps, self.ramp_end_rps,
                                num_prompts=self.num_prompts, duration_s=self.duration)


def plan_of(workload: Workload, asked: LoadAsked, *, by_lengths: bool) -> Plan:
    """The requests of the run. Only lengths with a number of prompts go without a rate: all at once,
    or, under --max-concurrency, one for each that ends."""
    rate, num_prompts, duration = asked.rate, asked.num_prompts, asked.duration
    num_warmups, burstiness, seed = asked.num_warmups, asked.burstiness, asked.seed
    if num_prompts is not None and duration is not None:
        raise UsageError("give the length of the run as either --num-prompts or --duration")
    if (profile := asked.profile()) is not None:
        return build_plan(
            workload, profile=profile, seed=seed, num_prompts=num_prompts, duration_s=duration,
            num_warmups=num_warmups, burstiness=burstiness,
            warmup_s=workload.warmup_seconds if num_warmups is None else None)
    if rate is None and asked.max_concurrency is not None and num_prompts is not None:
        rate = math.inf
    if rate is None and not (by_lengths and num_prompts is not None):
        also = "; or --num-prompts to send so many at once" if by_lengths else ""
        raise UsageError(f"give the load with --request-rate, in requests per second{also}")
    rate_rps = math.inf if rate is None else rate
    if math.isinf(rate_rps) and rate_rps > 0 and num_prompts is None:
        raise UsageError("--request-rate inf sends all requests at once: say how many with --num-prompts")
    timed_warmup = num_warmups is None and not math.isinf(rate_rps)
    return build_plan(
        workload, rate_rps=rate_rps, seed=seed, num_prompts=num_prompts, num_warmups=num_warmups,
        duration_s=(workload.run_seconds if duration is None else duration) if num_prompts is None else None,
        warmup_s=workload.warmup_seconds if timed_warmup else None, burstiness=burstiness)


def last_send_s(plan: Plan, asked: LoadAsked) -> float | None:
    """A run of a given duration sends nothing after it, however long a concurrency cap holds requests
    back; None for a run of a number of requests, which sends them all."""
    if asked.max_concurrency is None or asked.num_prompts is not None or not len(plan):
        return None
    return float(plan.intended_ns[-1]) / 1e9 + 1.0


def engine_source(
    workload: Workload, knobs: KnobsAsked, engine: dict[str, Any], *, config: str | None,
    target: HttpTarget | None, request_timeout_s: float, ready_timeout_s: float,
) -> EngineSource:
    """The server that runs already, or how to start an engine; UsageError where flags contradict."""
    if target is not None:
        mine = {name: value for name, value in engine.items() if name != "model"} | knobs.as_flags()
        if also := [f"--{name.replace('_', '-')}" for name, value in (mine | {"config": config}).items()
                    if value not in (None, [])]:
            raise UsageError(f"the server runs already and is measured as it is: leave out {', '.join(also)}")
        return EngineSource(target=target, request_timeout_s=request_timeout_s)
    if config is not None:
        return EngineSource(launch=launch_from_config(Path(config), engine | knobs.as_flags()),
                            ready_timeout_s=ready_timeout_s)
    knobs.check()
    return EngineSource(
        launch=launch_from_options(workload, **engine, ceiling_budget=knobs.token_budget or 0),
        ready_timeout_s=ready_timeout_s)


def launch_from_config(path: Path, given: dict[str, Any]) -> VllmLaunch:
    """An engine from a `vllm serve --config` file alone; UsageError where other flags about it are given."""
    if also := [f"--{name.replace('_', '-')}" for name, value in given.items() if value not in (None, [])]:
        raise UsageError(f"--config starts the engine from its file alone: leave out {', '.join(also)}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the engine's configuration {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model"), str):
        raise UsageError(f"{path} names no model: give a file for `vllm serve --config`, such as a "
                         f"recommended.yaml, with a key model")
    return VllmLaunch(content["model"], config_file=path.resolve())


def slo_of(texts: list[str] | None, workload: Workload, *, fluidity: bool,
           goodput: GoodputRules | None) -> Slo | None:
    """The SLO that was asked for, else the workload's own where this run can judge it, else None.

    UsageError for one that was asked for and that a flag makes impossible to judge.
    """
    if not (texts or workload.slo):
        return None
    slo = parse_slo(texts or workload.slo)
    lacking = [
        f"{objective.key} needs {remedy}" for objective in slo.objectives
        for missing, metrics, remedy in (
            (not fluidity, _NEED_CURVE, "deadlines: leave out --no-fluidity"),
            (goodput is None, ("goodput",), "rules: give --goodput, as in --goodput 'ttft:200 tpot:50'"),
        ) if missing and objective.metric in metrics
    ]
    if lacking and texts:
        raise UsageError(f"--slo {lacking[0]}")
    return None if lacking else slo


def goodput_rules(texts: list[str] | None) -> GoodputRules | None:
    """The rules of all `--goodput` flags together; None without one."""
    return GoodputRules.parse(" ".join(texts)) if texts else None


def goodput_of(rules: GoodputRules | None, *, fluidity: bool) -> GoodputRules | None:
    """The same, where this run can judge them; UsageError where it cannot."""
    if rules is not None and rules.needs_deadlines and not fluidity:
        raise UsageError("--goodput with fluidity or stall needs deadlines: leave out --no-fluidity")
    return rules


def wants_fluidity(asked: bool | None, *, remote: bool, curve_given: bool, slo: list[str] | None,
                   rules: GoodputRules | None, workload: Workload, by_lengths: bool) -> bool:
    """Whether the run needs deadlines. Timing lone prefills is load of our own, which a server that runs
    already gets only where it was asked for, or where an objective cannot be judged without."""
    if asked is not None:
        return asked
    if not remote or curve_given or not by_lengths:
        return True
    objectives = parse_slo(slo or workload.slo).objectives if slo or workload.slo else ()
    return (rules is not None and rules.needs_deadlines) or any(o.metric in _NEED_CURVE for o in objectives)


def metadata_of(pairs: list[str] | None) -> dict[str, str]:
    """The pairs of all `--metadata KEY=VALUE`; UsageError for one without a key or `=`."""
    metadata = {}
    for pair in pairs or ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals):
            raise UsageError(f"--metadata {pair!r} is not KEY=VALUE, as in --metadata driver=600.1")
        metadata[key] = value
    return metadata


def above_zero(flag: str, value: float, *, or_zero: bool = False) -> float:
    """`value`, if it is finite and above 0 (or 0 where that is allowed); else a UsageError."""
    if math.isfinite(value) and (value > 0 or (or_zero and value == 0)):
        return value
    bound = "of at least" if or_zero else "above"
    raise UsageError(f"{flag} must be a finite number {bound} 0; got {value:g}")
