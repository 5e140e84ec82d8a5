"""`tune doctor`: what is installed, what the machine is, what will be used, what is wrong."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tuner.setup.diagnosis import Finding, Situation


def doctor(
    model: Annotated[str, typer.Option(help="Model that the runs will use.")] = "smollm2-135m",
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as one JSON object.")] = False,
) -> None:
    """Say what is installed, what the machine is, what a run will use, and how to mend what is wrong.

    Exit code 0 when a run can start, 64 when something blocks it.
    """
    import json

    from tuner.setup.diagnosis import findings, look

    situation = look(model)
    found = findings(situation)
    if as_json:
        typer.echo(json.dumps(_as_json(situation, found), indent=2))
    else:
        typer.echo("\n".join(_screen(situation, found)))
    if any(finding.blocks for finding in found):
        raise typer.Exit(64)


def _as_json(situation: "Situation", found: "list[Finding]") -> dict[str, Any]:
    return {
        "schema_version": 1,
        "usable": not any(finding.blocks for finding in found),
        "packages": situation.packages,
        "machine": {
            **{key: value for key, value in situation.machine.items() if key != "packages"},
            "free_memory_bytes": situation.free_memory_bytes,
            "shm_free_bytes": situation.shm_free_bytes,
            "cache_free_bytes": situation.cache_free_bytes,
        },
        "uses": {
            "engine": situation.engine,
            "model": situation.model,
            "model_path": situation.model_path,
            "cache": str(situation.cache),
        },
        "findings": [asdict(finding) for finding in found],
    }


def _screen(situation: "Situation", found: "list[Finding]") -> list[str]:
    machine, packages = situation.machine, situation.packages
    gpu_names = ", ".join(gpu["name"] for gpu in machine["gpus"])
    engine = situation.engine
    lines = [
        "Installed",
        _row("python", machine["python"]),
        *(_row(name, version) for name, version in packages.items()),
        "Machine",
        _row("system", f"{machine['os']}, kernel {machine['kernel']}, {machine['machine']}"),
        _row("CPU", f"{machine['cpu_model'] or 'unknown'}, {machine['cores']:g} usable cores"),
        _row("GPU", gpu_names or "none"),
        _row("memory", f"{_gib(machine['memory_bytes'])}, {_gib(situation.free_memory_bytes)} free"),
        _row("/dev/shm", f"{_gib(situation.shm_free_bytes)} free"),
        "A run uses",
        _row("engine", f"{engine} {packages[engine]}" if engine else "none installed"),
        _row("model", situation.model_path or f"{situation.model} (not usable)"),
        _row("cache", f"{situation.cache}, {_gib(situation.cache_free_bytes)} free on its disk"),
    ]
    if not found:
        return [*lines, "Nothing is wrong: a run can start."]
    lines.append("To mend")
    for finding in found:
        lines += [f"  {'BLOCKS' if finding.blocks else 'note  '}  {finding.problem}",
                  f"          -> {finding.remedy}"]
    return lines


def _row(name: str, value: str) -> str:
    return f"  {name:<13} {value}"


def _gib(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{size_bytes / (1 << 30):.1f} GiB"
