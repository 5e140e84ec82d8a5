"""Traces opened by path: which format, which pieces, which counts."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import UsageError
from workloads.traces import ReadOptions, open_trace, opening, raw_rows, read_trace, reading
from workloads.traces.formats import FORMATS, SNIFF_ORDER


def written(folder: Path, rows: int) -> Path:
    file = folder / "t.csv"
    file.write_text("timestamp_s,input_len,output_len\n"
                    + "".join(f"{row / 8},{row % 7},{row % 5 + 1}\n" for row in range(1, rows + 1)))
    return file


def test_pieces_are_bounded_and_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is larger than the bound, all of them together are the trace, and times go on over them."""
    monkeypatch.setattr(reading, "PIECE_ROWS", 100)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 3000)
    file = written(tmp_path, 1000)
    reader = open_trace(file, options=ReadOptions(bad_rows="skip"))
    pieces = list(reader.pieces())
    assert max(map(len, pieces)) <= 100
    assert len(pieces) >= 9
    whole = np.concatenate([piece.arrival_ns for piece in pieces])
    assert np.array_equal(whole, (np.array([row for row in range(1, 1001) if row % 7]) - 1) * 125_000_000)
    assert (reader.read, reader.rejected) == (1000, {"length below 1": 142})
    assert pieces[-1].rejected == {"length below 1": 142}
    assert read_trace(file, options=ReadOptions(bad_rows="skip")).rejected == {"length below 1": 142}


def test_a_reader_begins_anew(tmp_path: Path) -> None:
    """Each call of `pieces` reads from the beginning and counts from 0, also after one that was left."""
    reader = open_trace(written(tmp_path, 50), options=ReadOptions(bad_rows="skip"))
    list(islice(reader.pieces(), 1))
    lengths = [len(piece) for piece in reader.pieces()]
    assert lengths == [len(piece) for piece in reader.pieces()] == [43]
    assert reader.rejected == {"length below 1": 7}


def test_names_of_formats_are_forgiving(tmp_path: Path) -> None:
    """Upper case and `_` for `-` name the same format; an unknown name is refused with the known ones."""
    file = written(tmp_path, 3)
    assert open_trace(file, format="CSV").format == "csv"
    assert open_trace(file, format="timed_trace").format == "timed-trace"
    with pytest.raises(UsageError, match="unknown trace format 'parquet'; known: azure, burstgpt, csv"):
        open_trace(file, format="parquet")


def test_what_no_format_fits_is_said(tmp_path: Path) -> None:
    """A file that looks like none of them is shown by its beginning, JSON by its keys."""
    file = tmp_path / "t"
    file.write_text("hello\n")
    with pytest.raises(UsageError, match=r"cannot tell the format of .*begins with 'hello'"):
        open_trace(file)
    file.write_text('{"colour": 1, "size": 2}\n')
    with pytest.raises(UsageError, match=r"cannot tell the format of .*has the keys colour, size"):
        open_trace(file)


def test_every_format_can_be_told_and_shown() -> None:
    """The registry lists each format once, with units, and tries all of them."""
    assert sorted(SNIFF_ORDER) == sorted(FORMATS)
    for name, form in FORMATS.items():
        assert name == form.name
        assert "tokens" in form.units
        assert form.example
    assert raw_rows.PIECE_ROWS >= 1000


@pytest.mark.parametrize("name", ["azure", "burstgpt", "csv"])
def test_the_examples_are_rows_of_their_formats(tmp_path: Path, name: str) -> None:
    """The row that the list of formats shows is read, below the header that it stands for."""
    header = {"azure": "TIMESTAMP,ContextTokens,GeneratedTokens", "csv": "timestamp_s,input_len,output_len",
              "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"}[name]
    file = tmp_path / "t.csv"
    file.write_text(f"{header}\n{FORMATS[name].example}\n")
    assert open_trace(file).format == name
    assert len(read_trace(file)) == 1


HEADS = ["", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "timestamp_s,input_len,output_len\n",
         "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
         "input_len,output_len,session\n"]


@settings(deadline=None, max_examples=120)
@given(head=st.sampled_from(HEADS), data=st.binary(max_size=80) | st.text(
    st.sampled_from('0123456789.,-:" \r\n+eTZ'), max_size=80).map(str.encode),
    form=st.sampled_from(["azure", "burstgpt", "csv", "servegen", None]), skip=st.booleans())
def test_no_bytes_crash_a_reader(tmp_path_factory: pytest.TempPathFactory, head: str, data: bytes,
                                 form: str | None, skip: bool) -> None:
    """Whatever a file holds, it is read or refused in one line."""
    file = tmp_path_factory.mktemp("junk") / "t.csv"
    file.write_bytes(head.encode() + data)
    message = ""
    try:
        assert len(read_trace(file, format=form, options=ReadOptions(bad_rows="skip" if skip else "refuse")))
    except UsageError as error:
        message = str(error)
    assert "\n" not in message
