"""`tune simulate`: everything that is wrong ends with one line that says what to change."""

import pytest

from tuner.cli.main import main

MACHINE = ("--hardware", "h100-sxm", "--model", "llama-3.1-8b")
LOAD = ("--input-len", "800", "--output-len", "40", "--request-rate", "10", "--num-prompts", "150")


@pytest.fixture
def simulate(monkeypatch, tmp_path, capsys):
    """Runs `tune simulate` in an empty directory; returns code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, machine=MACHINE):
        with pytest.raises(SystemExit) as left:
            main(["simulate", *machine, *arguments])
        return left.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(("arguments", "said"), [
    ((), "--preset"),
    (("--preset", "cpu"), "--request-rate"),
    (("--workload", "nope", "--request-rate", "1"), "unknown workload"),
    ((*LOAD[:-4], "--request-rate", "0", "--num-prompts", "5"), "above 0"),
    ((*LOAD, "--knobs", "budget=5"), "known: token_budget"),
    ((*LOAD, "--knobs", "token_budget=8,max_seqs=16"), "--max-num-seqs"),
    ((*LOAD, "--knobs", "max_seqs=8", "--max-num-seqs", "8"), "keep one"),
    ((*LOAD, "--policy", "orca", "--async-scheduling"), "only vllm-v1"),
    ((*LOAD, "--policy", "lifo"), "sarathi-serve"),
    ((*LOAD, "--draft-acceptance", "2"), "--draft-acceptance"),
    ((*LOAD, "--slo", "tbt:p99>=1ms"), "better lower"),
    ((*LOAD, "--result-dir", "x", "--result-filename", "r", "--knobs", "max_seqs=8", "--knobs",
      "max_seqs=9"), "--result-filename"),
    ((*LOAD, "--watermark", "1"), "watermark"),
    ((*LOAD, "--max-model-len", "0"), "max_model_len"),
])
def test_wrong_usage_is_one_line(simulate, arguments, said):
    """Exit code 64 and one line that says what to change."""
    code, out, err = simulate(*arguments)
    assert code == 64
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(("hardware", "model", "said"), [
    (None, None, "--hardware"), ("h1000", "llama-3.1-8b", "h100-sxm"), ("h100-sxm", None, "--model"),
    ("h100-sxm", "gpt-9", "llama-3.1-8b"), ("none.yaml", "llama-3.1-8b", "none.yaml"),
    ("odd.json", None, "odd.json"), ("h100-sxm", "model/config.json", "config.json"),
    ("broken.yaml", "llama-3.1-8b", "broken.yaml"),
])
def test_a_machine_that_is_not_known_is_one_line(simulate, tmp_path, hardware, model, said):
    """Unknown sheets list the known ones; files that are something else are named, with what they lack."""
    (tmp_path / "odd.json").write_text('{"kind": "shopping list"}')
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    machine = [*(("--hardware", hardware) if hardware else ()), *(("--model", model) if model else ())]
    code, out, err = simulate(*LOAD, machine=machine)
    assert (code, out) == (64, "")
    assert err.count("\n") == 1
    assert said in err
