"""The script that measures a device, and the page about sheets."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from engine_adapter.simulator.sheets import hardware_names, hardware_sheet, model_names

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "docs" / "studies" / "gpu_sheet.py"
PAGE = (ROOT / "docs" / "simulator-sheets.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_sheet", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_measurements_become_shares_and_tiles(script: ModuleType, tmp_path: Path) -> None:
    """A device that reaches 70 % of its peak in tiles of 64 and 128 tokens is described as one."""
    def product(tokens: int) -> dict[str, object]:
        rows = -(-tokens // 64) * 64 if tokens <= 64 else -(-tokens // 128) * 128
        return {"dtype": "bf16", "outputs": 4096, "inputs": 4096, "tokens": tokens,
                "ns": 2 * rows * 4096 * 4096 / (989.4e3 * 0.7)}

    pairs = 2048 * 1024.5
    measured = {
        "device": "A device", "torch": "2", "copy_bytes_per_ns": 3600.0,
        "products": [product(tokens) for tokens in script.TOKENS[False]],
        "attention": [{"tokens": 2048, "prefix": 0, "heads": 32, "head_dim": 128,
                       "ns": 4 * 32 * 128 * pairs / (989.4e3 * 0.5)}],
    }
    path = tmp_path / "measured.yaml"
    path.write_text(json.dumps(script.in_sheet(hardware_sheet("h200-sxm").model_dump(mode="json"), measured)))
    sheet = hardware_sheet(str(path))
    assert sheet.name == "A device"
    assert sheet.compute["bf16"].gemm_share == pytest.approx(0.7)
    assert sheet.compute["bf16"].tile_tokens == (64, 128)
    assert sheet.compute["fp8"] == hardware_sheet("h200-sxm").compute["fp8"]
    assert (sheet.memory_share, sheet.attention_share) == (0.75, pytest.approx(0.5))


def test_the_script_measures_whatever_torch_is_here() -> None:
    """Its self-test runs to the end and prints a row for each shape."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    done = subprocess.run([sys.executable, str(SCRIPT), "--small"], capture_output=True, text=True,
                          check=True)
    measured = json.loads(done.stdout)
    assert {row["tokens"] for row in measured["products"]} == {1, 16, 17, 64}
    assert len(measured["attention"]) == 4
    assert all(row["ns"] > 0 for row in measured["products"] + measured["attention"])


def test_the_page_lists_every_sheet_and_shows_one_that_works(tmp_path: Path) -> None:
    """What is documented is what there is."""
    assert set(hardware_names()) | set(model_names()) <= set(re.findall(r"`([^`\s]+)`", PAGE))
    example = re.search(r"```yaml title=my-gpu\.yaml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    (tmp_path / "my-gpu.yaml").write_text(example[1])
    sheet = hardware_sheet(str(tmp_path / "my-gpu.yaml"))
    assert sheet.compute["fp8"].ragged_share == 0.25
    assert set(sheet.model_dump()) - {"name"} == set(re.findall(r"^(\w+):", example[1], re.MULTILINE))
