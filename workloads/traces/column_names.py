"""What users may name with `--column OURS=THEIRS`, for formats that are read by key."""

from collections.abc import Mapping

from workloads.errors import UsageError


def keys_by_field(columns: Mapping[str, str], known: Mapping[str, str], format_name: str) -> dict[str, str]:
    """The file's key for each field that is named otherwise in it; `known` has the field for each of our
    names. UsageError for a name of ours that the format has no field for."""
    for ours in columns:
        if ours not in known:
            raise UsageError(f"--column {ours}={columns[ours]}: the format {format_name} has no such column; "
                             f"it has {', '.join(known)}")
    return {known[ours]: theirs for ours, theirs in columns.items()}
