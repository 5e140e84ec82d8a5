"""One run on the scripted engine: knobs, deadlines, what is kept when it ends early."""

import asyncio
import json
from dataclasses import replace

import pytest

from bench import OutputError, PrefillCurve, load_head, load_run
from engine_adapter.clock import VirtualClock
from engine_adapter.errors import Crashed, OutOfMemory
from engine_adapter.knobs import KnobLimits, Knobs
from engine_adapter.scripted import Fault, LinearStep, ScriptedEngine
from engine_adapter.seam import Applied
from tuner.knobs_asked import KnobsAsked
from tuner.one_run import RunSpec, measure_one
from tuner.prefill_reference import load_prefill_curve
from tuner.slo import parse_slo
from workloads import EvidenceError, UsageError, Workload, build_plan

DEFAULT = Knobs(token_budget=256, max_seqs=16)
WORKLOAD = Workload.from_lengths(96, 12, 0.5, run_seconds=10, warmup_seconds=2)
PLAN = build_plan(WORKLOAD, rate_rps=3.0, seed=1, num_prompts=40, num_warmups=4)
CURVE = PrefillCurve((16, 200), (30_000_000, 140_000_000),
                     fingerprint={"engine": "scripted 1", "model": "scripted-model"})


def spec_in(tmp_path, **changes):
    spec = RunSpec(workload=WORKLOAD, plan=PLAN, burstiness=1.0, directory=tmp_path / "run",
                   knobs=KnobsAsked(), decode_deadline_ms=50, prefill_slack_ms=300, prefill_curve=CURVE)
    return replace(spec, **changes)


class Engines:
    """The engines of one measurement, on one clock."""

    def __init__(self, **options):
        self.clock = VirtualClock()
        self.options = {"limits": KnobLimits(256, 16, 1024)} | options
        self.started = []
        self.said = []

    def make(self, knobs):
        engine = ScriptedEngine(self.clock, **({"knobs": knobs} | self.options))
        self.started.append(engine)
        return engine

    async def measure(self, spec):
        return await measure_one(self.make(DEFAULT), self.make, spec, clock=self.clock, say=self.said.append)

    def run(self, spec):
        return asyncio.run(self.measure(spec))

    @property
    def all_stopped(self):
        return all(engine._loop is None for engine in self.started)


def test_a_run_is_kept_with_its_figures_curve_and_settings(tmp_path):
    """The run directory holds the run, its summary and the curve; nothing asked means the defaults."""
    engines = Engines()
    one = engines.run(spec_in(tmp_path, label="mine", metadata={"driver": "600"}))
    assert (one.exit_code, one.failing(), engines.all_stopped) == (0, "", True)
    kept = load_run(tmp_path / "run")
    assert kept.ok.sum() == 40
    assert kept.meta["knobs"] == DEFAULT.as_dict()
    assert kept.meta["metadata"] == {"driver": "600"}
    kept_summary = load_head(tmp_path / "run")["summary"]
    assert kept_summary == json.loads(json.dumps(one.summary.as_dict())) | {"stages": []}
    assert load_prefill_curve(tmp_path / "run") == CURVE
    assert one.as_dict()["driver"] == "600"


def test_knobs_are_applied_to_the_running_engine(tmp_path):
    """Settings within the engine's ceilings cost no second start, and the run names them."""
    engines = Engines()
    one = engines.run(spec_in(tmp_path, knobs=KnobsAsked(token_budget=64, long_prefill_token_threshold=32)))
    assert len(engines.started) == 1
    assert one.run.meta["knobs"] == replace(DEFAULT, token_budget=64,
                                            long_prefill_token_threshold=32).as_dict()
    assert one.run.steps.steps["num_tokens"].max() <= 64


@pytest.mark.parametrize("options", [{"live_knobs": False}, {"limits": KnobLimits(200, 16, 1024)}])
def test_knobs_that_cannot_be_applied_live_get_an_engine_of_their_own(tmp_path, options):
    """Without live knobs, or above the ceilings, a second engine is started and the first one stopped."""
    engines = Engines(**options)
    one = engines.run(spec_in(tmp_path, knobs=KnobsAsked(token_budget=220)))
    assert len(engines.started) == 2
    assert engines.all_stopped
    assert one.run.meta["knobs"]["token_budget"] == 220


def test_an_engine_that_does_not_obey_is_not_measured(tmp_path):
    """Knobs are read back; when others are in force there is no run."""
    class Stubborn(ScriptedEngine):
        async def apply(self, knobs):
            return Applied(DEFAULT)

    engines = Engines()
    engines.make = lambda knobs: Stubborn(engines.clock, knobs=DEFAULT)
    with pytest.raises(EvidenceError, match=r"budget 64.*budget 256"):
        engines.run(spec_in(tmp_path, knobs=KnobsAsked(token_budget=64)))
    assert not (tmp_path / "run").exists()


def test_the_curve_is_measured_on_the_default_knobs(tmp_path):
    """A small budget does not relax its own deadlines: the curve is that of the default."""
    by_default, by_small = (
        Engines().run(spec_in(tmp_path, prefill_curve=None, directory=tmp_path / name, knobs=knobs))
        for name, knobs in (("a", KnobsAsked()), ("b", KnobsAsked(token_budget=32))))
    curves = [one.summary.deadlines.curve for one in (by_default, by_small)]
    assert curves[0].times_ns == curves[1].times_ns
    assert curves[1].fingerprint["knobs"] == DEFAULT.as_dict()
    assert curves[0].tokens[-1] == PLAN.input_len.max()
    assert not by_small.warnings


def test_an_engine_below_its_defaults_is_measured_as_it_is_with_a_warning(tmp_path):
    """Started from a file with low ceilings it cannot take the defaults: its own curve relaxes deadlines."""
    class Lowered(ScriptedEngine):
        async def start(self):
            return replace(await super().start(), default_knobs=DEFAULT)

    engines = Engines()
    engines.make = lambda knobs: Lowered(engines.clock, knobs=Knobs(64, 16), limits=KnobLimits(64, 16, 1024))
    one = engines.run(spec_in(tmp_path, knobs=None, prefill_curve=None))
    assert one.run.meta["knobs"]["token_budget"] == 64
    assert one.summary.deadlines.curve.fingerprint["knobs"]["token_budget"] == 64
    (warning,) = one.warnings
    assert "--prefill-curve" in warning
    assert one.run.meta["warnings"] == [warning]


def test_a_curve_from_elsewhere_is_used_with_a_warning(tmp_path):
    """Another engine's curve, and one that ends before the longest prompt, are named as such."""
    foreign = PrefillCurve((16, 64), (1_000_000, 2_000_000),
                           fingerprint={"engine": "scripted 1", "model": "m"})
    one = Engines().run(spec_in(tmp_path, prefill_curve=foreign))
    (warning,) = one.warnings
    assert "other model" in warning
    assert "ends at 64 tokens" in warning
    assert one.as_dict()["deadlines"]["prefill_curve_id"] == foreign.digest()


def test_without_fluidity_nothing_is_measured_beforehand(tmp_path):
    """No curve, no deadlines: fluidity is null with its reason, the rest stays."""
    told = Engines().run(spec_in(tmp_path, fluidity=False, prefill_curve=None)).as_dict()
    assert told["fluidity_index_mean"] is None
    assert "curve" in told["missing"]["fluidity_index_mean"]
    assert told["mean_ttft_ms"] > 0
    assert not (tmp_path / "run" / "prefill_curve.json").exists()


@pytest.mark.parametrize(("slo", "asked", "code"), [
    ("tbt:p99<=10s", True, 0), ("tbt:p99<=1ms", True, 1), ("tbt:p99<=1ms", False, 0),
])
def test_missing_an_slo_that_was_asked_for_is_exit_code_1(tmp_path, slo, asked, code):
    """The workload's own SLO is judged and shown, but only one that was asked for decides."""
    one = Engines().run(spec_in(tmp_path, slo=parse_slo([slo]), slo_is_asked=asked))
    assert one.exit_code == code
    assert one.as_dict()["slo"]["holds"] is (slo == "tbt:p99<=10s")
    assert ("tbt:p99<=1ms" in one.failing()) is (code == 1)


@pytest.mark.parametrize(("kind", "told"), [("crash", "died at step"), ("hang", "gave no token")])
def test_an_engine_that_fails_in_mid_run_leaves_the_part_that_was_measured(tmp_path, kind, told):
    """Crashed or hung: the run is kept as invalid, exit code 3, one line, and no engine is left."""
    engines = Engines(faults=(Fault(kind, at_step=200),))
    one = engines.run(spec_in(tmp_path))
    assert one.exit_code == 3
    assert told in one.failing()
    assert engines.all_stopped
    kept = load_run(tmp_path / "run")
    assert 0 < kept.ok.sum() < 40
    assert not kept.validity.valid


def test_an_engine_that_fails_before_the_run_raises(tmp_path):
    """No run began, so none is kept; the failure is the engine's own error."""
    for fault, error in ((Fault("out_of_memory"), OutOfMemory), (Fault("crash", at_step=3), Crashed)):
        engines = Engines(faults=(fault,))
        with pytest.raises(error):
            engines.run(spec_in(tmp_path, prefill_curve=None))
        assert engines.all_stopped
    assert list(tmp_path.iterdir()) == []


def test_a_workload_that_does_not_fit_the_model_is_refused(tmp_path):
    """A prompt longer than the model is wrong usage, found before anything is measured."""
    engines = Engines(limits=KnobLimits(256, 16, 100))
    with pytest.raises(UsageError, match="--max-model-len"):
        engines.run(spec_in(tmp_path))
    assert engines.all_stopped


def test_cancellation_in_mid_run_keeps_what_was_measured(tmp_path):
    """The run ends in order: kept, marked as cut short, exit code 130, engine stopped."""
    engines = Engines()

    async def cut():
        task = asyncio.create_task(engines.measure(spec_in(tmp_path)))
        await engines.clock.sleep_until(25_000_000_000)  # the engine takes 20 s to start
        task.cancel()
        return await task

    one = asyncio.run(cut())
    assert one.exit_code == 130
    assert engines.all_stopped
    kept = load_run(tmp_path / "run")
    assert 0 < kept.ok.sum() < 40
    assert kept.validity.reasons[0] == "the run was cut short: interrupted"


def test_only_failed_requests_give_whole_json_and_an_invalid_run(tmp_path):
    """With every request refused there are no figures, the JSON is whole, and the run supports nothing."""
    engines = Engines(faults=tuple(Fault("reject", request=n) for n in range(len(PLAN))))
    one = engines.run(spec_in(tmp_path, slo=parse_slo(["tbt:p99<=1s"]), slo_is_asked=True))
    assert one.exit_code == 3
    assert "not one request succeeded (40 rejected)" in one.failing()
    told = json.loads(json.dumps(one.as_dict(), allow_nan=False))
    assert told["slo"]["holds"] is False
    assert (told["completed"], told["failed"], told["error_rate"]) == (0, 40, 1)
    assert told["mean_ttft_ms"] is None


def test_an_infinite_burstiness_and_rate_are_written_as_strings(tmp_path):
    """JSON has no infinity: both are the string vLLM writes."""
    plan = build_plan(WORKLOAD, rate_rps=float("inf"), seed=1, num_prompts=10)
    one = Engines().run(spec_in(tmp_path, plan=plan, burstiness=float("inf")))
    told = load_head(tmp_path / "run")["summary"]
    assert (told["request_rate"], told["burstiness"]) == ("inf", "inf")
    assert one.summary.as_dict()["max_concurrent_requests"] == 10


def test_a_run_that_cannot_be_written_still_stops_the_engine(tmp_path):
    """When the directory was taken meanwhile, the error says so and no engine is left."""
    (tmp_path / "run").mkdir()
    engines = Engines(step_cost=LinearStep(fixed_ns=1_000_000))
    with pytest.raises(OutputError, match="exists already"):
        engines.run(spec_in(tmp_path))
    assert engines.all_stopped
