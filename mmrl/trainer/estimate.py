"""One figure of what a run will take."""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 2**30


@dataclass(frozen=True)
class Estimate:
    """unit: steps, passes, parts, s or bytes. reason: what the value was computed from, in words.

    place: where bytes lie: on the device that computes, or in the host's memory.
    """

    name: str
    value: float
    unit: str
    reason: str
    place: str = "device"

    @property
    def line(self) -> str:
        shown = {"bytes": f"{self.value / _GIB:.2f} GiB", "s": _duration(self.value)}.get(self.unit)
        return f"{self.name}: {shown or f'{self.value:,.4g} {self.unit}'}; {self.reason}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    hours, rest = divmod(minutes, 60)
    if hours >= 48:
        return f"about {round(hours / 24)} days"
    return f"about {hours} h {rest:02d} min" if hours else f"about {minutes} min"
