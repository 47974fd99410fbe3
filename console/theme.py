"""How the console looks: one accent, light and dark, and chart colours that colour-blind readers tell apart.

Text has a contrast of 4.5 or more on its background in both.
"""

from __future__ import annotations

from typing import Any

CHART_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b65a92", "#b07d00", "#3a93c8", "#6f6f6f", "#8c564b")
"""After Okabe and Ito, the light ones darkened so that thin lines are seen on white and on dark."""

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
