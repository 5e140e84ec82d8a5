"""A trace beside the traffic of its model, as reports say it."""

from reports.fit_agreement import agreement_section, agreement_table, agreement_verdict
from workloads.fitting import Agreement

NEAR = Agreement("rate (requests/s)", 2.0, (2.01, 1.99), 0.01)
FAR = Agreement("prompt tokens p50", 1000.0, (1010.0, 1080.0), 0.05)
SHOWN = Agreement("CV of the gaps", 2.0, (5.0, 2.0))
APART = Agreement("rank correlation of prompt and answer", 0.5, (0.45, 0.52), 0.1, "absolute")


def test_the_worst_seed_counts() -> None:
    """A figure holds when every seed is within the tolerance; differences are relative or absolute."""
    assert (NEAR.holds, FAR.holds, SHOWN.holds, APART.holds) == (True, False, None, True)
    rows = agreement_table([NEAR, FAR, SHOWN, APART]).rows
    texts = {row[0].text: [cell.text.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in rows}
    assert texts["Prompt tokens p50"][1:] == ["1000", "1010", "1080", "+8 %", "5 %"]
    assert texts["CV of the gaps"][-1] == ""
    assert texts["Rank correlation of prompt and answer"][-2:] == ["−0.05", "0.1"]


def test_the_verdict_names_what_is_missed() -> None:
    """And how far it is off; figures without a tolerance decide nothing."""
    assert agreement_verdict([NEAR, SHOWN]).startswith("The model regenerates the trace: all 1 judged")
    said = agreement_verdict([NEAR, FAR, SHOWN]).replace("\N{NO-BREAK SPACE}", " ")
    assert "misses the trace in 1 of 2 judged figures: prompt tokens p50 by +8 % (at most 5 %)" in said
    assert "too little" in agreement_verdict([SHOWN])
    assert "too little" in agreement_verdict([])
    assert len(agreement_section([]).blocks) == 1
