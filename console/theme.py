"""How the console looks: one accent, light and dark, and chart colours that colour-blind readers tell apart.

Text has a contrast of 4.5 or more on its background in both.
"""

from __future__ import annotations

from typing import Any

CHART_COLOURS = ("#2485d6", "#e0641a", "#0f9f76", "#c467a0", "#a97f0a", "#8a6fd1", "#7d878c", "#a96a58")
"""The hues of Okabe and Ito, none so light or so dark that a thin line is lost: a contrast of 3.3 or more on white and
of 4.1 or more on the dark ground."""

_COMMON: dict[str, Any] = {
    "baseFontSize": 15,
    "baseRadius": "0.4rem",
    "headingFontSizes": ["1.7rem", "1.3rem", "1.1rem", "1rem", "0.95rem", "0.9rem"],
    "headingFontWeights": [650, 650, 600, 600, 600, 600],
    "metricValueFontSize": "1.5rem",
    "codeFontSize": "0.85rem",
    "paddingTop": "1.5rem",
    "paddingBottom": "3rem",
    "showWidgetBorder": True,
    "chartCategoricalColors": list(CHART_COLOURS),
}
_LIGHT: dict[str, Any] = {
    "primaryColor": "#0b7a75",
    "backgroundColor": "#ffffff",
    "secondaryBackgroundColor": "#f3f6f7",
    "textColor": "#0a0f12",
    "linkColor": "#0a6560",
    "borderColor": "#d5dde0",
    "grayTextColor": "#55626a",
}
_DARK: dict[str, Any] = {
    "primaryColor": "#12837d",
    "backgroundColor": "#13181b",
    "secondaryBackgroundColor": "#1d2428",
    "textColor": "#e6ecef",
    "linkColor": "#5fcfc6",
    "borderColor": "#364147",
    "grayTextColor": "#a3b0b7",
}


def theme_options() -> dict[str, Any]:
    """Options of Streamlit's theme by their dotted names."""
    sections = {"theme": _COMMON, "theme.light": _LIGHT, "theme.dark": _DARK}
    return {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
