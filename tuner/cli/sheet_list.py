"""The sheets that come with Stallfree, with their sources."""

import json
from typing import Any

import typer

from engine_adapter.simulator.sheets import hardware_names, hardware_sheet, model_names, model_sheet


def sheet_facts() -> dict[str, list[dict[str, Any]]]:
    """`hardware` and `models`, each a list in the order of their names; JSON-able."""
    return {
        "hardware": [
            {"name": name, "tflops": sheet.computing("bf16").peak_tflops, "gb_per_s": sheet.memory_gb_per_s,
             "memory_gib": sheet.memory_gib, "source": sheet.source, "assumed": sheet.assumed}
            for name in hardware_names() for sheet in [hardware_sheet(name)]],
        "models": [
            {"name": name, "parameters": model.parameters, "active_parameters": model.active_parameters,
             "kv_bytes_per_token": round(model.kv_bytes_per_token()), "max_model_len": model.max_model_len,
             "source": model.source}
            for name in model_names() for model in [model_sheet(name)]],
    }


def show_sheets(*, as_json: bool) -> None:
    """Print them: name, what decides, and the source of it below."""
    facts = sheet_facts()
    if as_json:
        typer.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    console.print("Hardware, for --hardware", style="bold")
    for sheet in facts["hardware"]:
        said = (f"{sheet['tflops']:g} TFLOP/s in 16 bits, {sheet['gb_per_s']:g} GB/s, "
                f"{sheet['memory_gib']:g} GiB")
        _entry(console, sheet["name"], said, sheet["source"], sheet["assumed"])
    console.print("\nModels, for --model", style="bold")
    for model in facts["models"]:
        active = "" if model["active_parameters"] == model["parameters"] else (
            f" ({model['active_parameters'] / 1e9:.3g} at work)")
        said = (f"{model['parameters'] / 1e9:.3g} billion parameters{active}, "
                f"{model['kv_bytes_per_token'] / 1e3:.4g} kB of KV cache a token, "
                f"up to {model['max_model_len']} tokens")
        _entry(console, model["name"], said, model["source"])


def _entry(console: Any, name: str, said: str, source: str, assumed: str = "") -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text.assemble((name, "bold"), f"  {said}"))
    for told in filter(None, (f"Source: {source}", f"Assumed: {assumed}" if assumed else "")):
        console.print(Padding(Text(" ".join(told.split()), style="dim"), (0, 0, 0, 4)))
