"""CSV files whatever their quotes and line ends: rows, and the lines on which they stand."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.traces import opening
from workloads.traces.csv_header import first_line, read_header
from workloads.traces.csv_rows import csv_pieces

FIELD = st.text(st.sampled_from('ab1,"\n é'), max_size=6)


def rows_of(file: Path) -> tuple[list[int], list[str], list[str]]:
    lines, texts, others = [], [], []
    for piece in csv_pieces(file, read_header(file), {"text": "text", "other": "other"}):
        lines += piece.line.tolist()
        texts += piece._cells["text"].to_pylist()
        others += piece._cells["other"].to_pylist()
    return lines, texts, others


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.tuples(FIELD, FIELD), max_size=12), end=st.sampled_from(["\n", "\r\n"]),
       blank=st.integers(0, 2), block=st.sampled_from([9, 64, 1 << 20]))
def test_every_row_comes_back_with_its_line(tmp_path_factory: pytest.TempPathFactory, end: str, blank: int,
                                            rows: list[tuple[str, str]], block: int) -> None:
    """Fields with commas, quotes and line ends, blank lines between rows, CRLF, and blocks that end within
    rows: texts come back as they were, with the line on which each row begins."""
    text, lines = io.StringIO(newline=""), []
    text.write(f"text,other{end}")
    for row in rows:
        text.write(end * blank)
        lines.append(text.getvalue().count("\n") + 1)
        quoting = csv.QUOTE_MINIMAL if row[0] else csv.QUOTE_ALL
        csv.writer(text, lineterminator=end, quoting=quoting).writerow(row)
    file = tmp_path_factory.mktemp("csv") / "t.csv"
    file.write_text(text.getvalue(), encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "BLOCK_BYTES", block)
        found = rows_of(file)
    assert found == (lines, [row[0] for row in rows], [row[1] for row in rows])


def test_the_header_is_the_first_line_with_text() -> None:
    """Blank lines before it are passed over; names lose blanks and quotes; tabs and semicolons divide too."""
    assert first_line(b'\n \n"a b", c\n1,2\n') == (("a b", "c"), 3, ",")
    assert first_line(b"a\tb,c\td\n") == (("a", "b,c", "d"), 1, "\t")
    assert first_line(b"a;b\n") == (("a", "b"), 1, ";")
    assert first_line(b"\n\n") is None


def test_a_long_text_in_another_column_is_no_obstacle(tmp_path: Path) -> None:
    """A prompt of more than 131072 characters over two lines, Python's limit for a field, is read past."""
    file = tmp_path / "t.csv"
    file.write_text('text,other,prompt\n1,2,"' + "x" * 200_000 + '\nmore"\n3,4,y\n')
    assert rows_of(file) == ([2, 4], ["1", "3"], ["2", "4"])
