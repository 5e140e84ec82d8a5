"""One launch, three spellings: arguments, a configuration file, a command line."""

import shlex

from engine_adapter.knobs import Knobs
from engine_adapter.vllm_launch import VllmLaunch

LAUNCH = VllmLaunch("/models/my model", {
    "max_model_len": 2048, "enforce_eager": True, "enable_prefix_caching": False, "dtype": None,
    "compilation_config": {"level": 3},
})


def test_a_launch_survives_json() -> None:
    """What the host process reads is what was asked."""
    launch = VllmLaunch("m", {"seed": 1}, knobs=Knobs(64, 8, 32, True))
    assert VllmLaunch.from_dict(launch.as_dict()) == launch


def test_the_file_and_the_command_say_the_same() -> None:
    """Flags are vLLM's; what is left to vLLM is left out; switched-off flags are negated."""
    config = LAUNCH.serve_config(Knobs(128, 16, 64))
    assert config == {
        "model": "/models/my model", "max-model-len": 2048, "enforce-eager": True,
        "no-enable-prefix-caching": True, "compilation-config": {"level": 3},
        "max-num-batched-tokens": 128, "max-num-seqs": 16, "long-prefill-token-threshold": 64,
    }
    words = shlex.split(LAUNCH.serve_command(Knobs(128, 16, 64)))
    assert words[:3] == ["vllm", "serve", "/models/my model"]
    assert words[words.index("--compilation-config") + 1] == '{"level": 3}'
    assert "--no-enable-prefix-caching" in words
    assert words[words.index("--max-num-batched-tokens") + 1] == "128"
