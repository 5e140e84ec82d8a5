"""`tune workload formats`: which trace files can be read."""

import json
from typing import Annotated, Any

import typer


def formats(
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """List the formats of trace files: fields, units, and a row of each.

    Files may be packed with gzip or zstd. docs/trace-formats.md says what is left out of each.
    """
    facts = format_facts()
    if as_json:
        typer.echo(json.dumps(facts, indent=2, allow_nan=False))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=False)
    for fact in facts:
        console.print(Text.assemble((fact["name"], "bold"), f"  {fact['title']}"))
        console.print(Padding(Text(fact["units"]), (0, 0, 0, 4), expand=False))
        # In one piece, to be copied.
        console.print(Text(f"    {fact['example']}", style="dim"), soft_wrap=True)


def format_facts() -> list[dict[str, Any]]:
    """What is known of each format, in the order of the list; JSON-able. None is what a format has not, or
    says itself row by row."""
    from workloads.traces.formats import FORMATS

    return [{"name": form.name, "title": form.title, "units": form.units, "example": form.example,
             "suffixes": list(form.suffixes), "time_unit": form.time_unit, "block_size": form.block_size,
             "lengths": form.lengths} for form in FORMATS.values()]
