from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from workloads import Component, Fixed, LogNormal, Uniform, UsageError, Workload, load_workload


def _content(**changes: Any) -> dict[str, Any]:
    content = {
        "name": "two",
        "description": "short and long",
        "components": [
            {"name": "short", "weight": 3, "input": {"kind": "fixed", "tokens": 100},
             "output": {"kind": "uniform", "low": 10, "high": 20}},
            {"name": "long", "weight": 1, "input": {"kind": "fixed", "tokens": 900},
             "output": {"kind": "fixed", "tokens": 5}},
        ],
        "max_model_len": 1000,
        "slo": ["tbt:p99<=100ms"],
        "decode_deadline_ms": 50,
        "run_seconds": 10,
        "warmup_seconds": 0,
    }
    return content | changes


def _written(folder: Path, **changes: Any) -> Path:
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump(_content(**changes)))
    return path


def test_a_mix_knows_its_shares_means_and_longest_request(tmp_path: Path) -> None:
    """Shares follow the weights; means are over the mix; the longest are over all components."""
    workload = load_workload(_written(tmp_path))
    assert workload.shares == (0.75, 0.25)
    assert workload.mean_input_len == 300
    assert workload.mean_output_len == pytest.approx(0.75 * 15 + 0.25 * 5, rel=1e-3)
    assert workload.longest_prompt == 900
    assert workload.longest_request == 905
    assert workload.burstiness == 1.0
    assert workload.prefill_slack_ms == 300.0


def test_the_digest_follows_the_content_and_not_the_name(tmp_path: Path) -> None:
    """Name and description may change; anything that changes the run changes the digest."""
    base = load_workload(_written(tmp_path)).digest()
    assert load_workload(_written(tmp_path, name="renamed", description="")).digest() == base
    for change in ({"burstiness": 0.5}, {"slo": ["ttft:p99<=2s"]}, {"decode_deadline_ms": 40},
                   {"components": _content()["components"][:1]}):
        assert load_workload(_written(tmp_path, **change)).digest() != base


def test_a_length_file_lies_beside_its_workload_and_counts_by_content(tmp_path: Path) -> None:
    """Relative paths start at the workload's folder; moving both keeps the digest, an edit changes it."""
    digests = []
    for folder, lengths in (("a", "5\n9\n"), ("b", "9\n5\n"), ("c", "5\n8\n")):
        (tmp_path / folder / "data").mkdir(parents=True)
        (tmp_path / folder / "data" / "lens.txt").write_text(lengths)
        component = {"name": "traced", "weight": 1, "input": {"kind": "file", "path": "data/lens.txt"},
                     "output": {"kind": "fixed", "tokens": 3}}
        workload = load_workload(_written(tmp_path / folder, components=[component]))
        assert workload.longest_prompt == int(max(lengths.split()))
        digests.append(workload.digest())
    assert digests[0] == digests[1] != digests[2]


def test_a_length_file_at_fault_is_named(tmp_path: Path) -> None:
    """A bad length file inside a workload is reported with its own line."""
    (tmp_path / "lens.txt").write_text("1\ntwo\n")
    component = {"name": "traced", "weight": 1, "input": {"kind": "file", "path": "lens.txt"},
                 "output": {"kind": "fixed", "tokens": 3}}
    with pytest.raises(UsageError, match=r"lens\.txt:2: 'two'"):
        load_workload(_written(tmp_path, components=[component]))


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"typo": 1}, "two.yaml: typo: Extra inputs"),
    ({"components": []}, "two.yaml: it has no components"),
    ({"max_model_len": 904}, "'long' may ask for 905 tokens, prompt and answer, more than max_model_len 904"),
    ({"burstiness": 0}, "two.yaml: burstiness: .*greater than 0"),
    ({"run_seconds": float("inf")}, "run_seconds: .*finite"),
    ({"warmup_seconds": float("nan")}, "warmup_seconds: "),
    ({"slo": [" "]}, "slo.0: "),
    ({"components": [_content()["components"][0]] * 2}, "names must differ; got short, short"),
    ({"components": [_content()["components"][0] | {"weight": 0}]}, "components.0.weight: .*greater than 0"),
    ({"components": [_content()["components"][0] | {"input": {"kind": "zipf"}}]}, "components.0.input: "),
    ({"decode_deadline_ms": 0, "max_model_len": "much"}, r"and 1 more\)"),
])
def test_a_bad_workload_file_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    """The message names the file, the place in it and what is wrong."""
    with pytest.raises(UsageError, match=complaint) as caught:
        load_workload(_written(tmp_path, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "complaint"), [
    ("a: [1\nb: 2", "two.yml is not valid YAML: .*line 2"),
    ("slo: 2024-99-99", "two.yml is not valid YAML"),
    ("- 1\n- 2", "holds no workload"),
    ("", "holds no workload"),
    ("1: 2", "two.yml: "),
])
def test_a_file_that_is_no_workload_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    """Broken YAML and YAML of another shape are told apart."""
    path = tmp_path / "two.yml"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint) as caught:
        load_workload(path)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_presets_and_a_missing_file_its_path(tmp_path: Path) -> None:
    """A name that is no preset says which there are; a path that cannot be read says so."""
    with pytest.raises(UsageError, match="unknown workload 'chta'; presets: chat, long-doc-qa"):
        load_workload("chta")
    with pytest.raises(UsageError, match=r"cannot read workload file .*none\.yaml"):
        load_workload(tmp_path / "none.yaml")


def test_lengths_from_flags_are_those_of_vllm() -> None:
    """Without a ratio lengths are fixed; with one they are uniform, floor below and ceiling above."""
    fixed = Workload.from_lengths(1024, 128)
    assert fixed.components[0].input == Fixed(tokens=1024)
    assert fixed.max_model_len == fixed.longest_request == 1152
    spread = Workload.from_lengths(1001, 1, 0.5, burstiness=float("inf"), slo=["tbt:p99<=50ms"])
    assert spread.components[0].input == Uniform(low=500, high=1502)
    assert spread.components[0].output == Uniform(low=1, high=2)
    assert spread.slo == ("tbt:p99<=50ms",)
    assert fixed.digest() != spread.digest()


@pytest.mark.parametrize(("arguments", "settings", "complaint"), [
    ((0, 1), {}, "--input-len and --output-len must be at least 1"),
    ((1, 0), {}, "--input-len and --output-len must be at least 1"),
    ((5, 5, 1.0), {}, "--random-range-ratio must be at least 0 and below 1"),
    ((5, 5, float("nan")), {}, "--random-range-ratio"),
    ((5, 5), {"burstiness": 0.0}, "burstiness: .*greater than 0"),
])
def test_impossible_flags_are_refused(arguments: Any, settings: dict[str, Any], complaint: str) -> None:
    """What vLLM's random dataset cannot draw is refused with the flag's name."""
    with pytest.raises(UsageError, match=complaint):
        Workload.from_lengths(*arguments, **settings)


def test_workloads_cannot_be_changed() -> None:
    """A workload is a value: assignment is refused."""
    component = Component(name="a", weight=1, input=Fixed(tokens=1),
                          output=LogNormal(median=2, sigma=1, low=1, high=3))
    with pytest.raises(ValueError, match="frozen"):
        component.weight = 2  # type: ignore[misc]


@pytest.mark.parametrize(("text", "complaint"), [
    ("name: a\nname: b\n", "the key 'name' stands twice"),
    ("a: " + "[" * 3000 + "]" * 3000, "nested too deeply"),
    ("a: {b: 1, b: 2}\n", "the key 'b' stands twice"),
])
def test_yaml_that_says_one_thing_twice_or_never_ends_is_refused(
        tmp_path: Path, text: str, complaint: str) -> None:
    """Of two equal keys one would be forgotten without a word."""
    (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(UsageError, match=complaint):
        load_workload(tmp_path / "w.yaml")


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"run_seconds": 1e300}, "run_seconds"), ({"warmup_seconds": 1e300}, "warmup_seconds"),
    ({"slo": ("nobody/tbt:p99<=1s",)}, "unknown tenant 'nobody' in the objective"),
])
def test_what_no_run_could_be_is_refused_with_the_workload(changes: dict[str, Any], complaint: str) -> None:
    """Lengths beyond what a plan can hold, and promises to tenants that there are not."""
    values = load_workload("cpu").model_dump() | changes
    with pytest.raises(ValidationError, match=complaint):
        Workload.model_validate(values)
