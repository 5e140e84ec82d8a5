"""The settings that every chart of a study marks, each with its colour, line and shape."""

from dataclasses import dataclass

from reports.chart_parts import ACCENT, NEUTRAL
from reports.comparison import same_setting
from reports.study import Setting, Study


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting and how it is drawn; shape and dash tell it apart without colour."""

    name: str
    colour: str
    marker: str
    dash: str
    setting: Setting


def shown_settings(study: Study) -> tuple[ShownSetting, ...]:
    """The default and the recommendation; one alone where they are the same or one is missing."""
    found = []
    if study.default is not None:
        name = "default (recommended)" if same_setting(study) else "default"
        found.append(ShownSetting(name, NEUTRAL, "square", "dash", study.default))
    if study.recommended is not None and not same_setting(study):
        found.append(ShownSetting("recommended", ACCENT, "circle", "solid", study.recommended))
    return tuple(found)
