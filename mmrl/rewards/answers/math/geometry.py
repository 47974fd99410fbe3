"""Names of angles, triangles and lines, and statements about them, whose letters are no factors of a product."""

from __future__ import annotations

import re

from mmrl.rewards.answers.latex import text_key

_OBJECT = re.compile(
    r"\\(?:angle|triangle|parallel|perp|sim|cong|odot|square)(?![a-zA-Z])|\\(?:overline|overleftrightarrow)\s*\{\s*[A-Z]{2}\s*\}"
)
_NAMED = re.compile(
    r"\\(?P<kind>angle|triangle)\s*\{?(?P<bare>[A-Z]{3})(?![A-Za-z])\}?"
    r"|\\(?P<line>overline|overleftrightarrow)\s*\{\s*(?P<ends>[A-Z]{2})\s*\}"
)
_SYMMETRIC = re.compile(r"(=|\\parallel|\\perp)")


def is_geometry(tidied: str) -> bool:
    return _OBJECT.search(tidied) is not None


def geometry_key(tidied: str) -> str:
    """What two statements share that say the same: an angle may be read from either side, a segment from either end,
    and sides of `=`, parallel and perpendicular may change places. Similar and congruent triangles name their corners
    in order."""
    keeps_order = r"\sim" in tidied or r"\cong" in tidied

    def named(match: re.Match[str]) -> str:
        if match["line"]:
            return f"\\{match['line']}{{{''.join(sorted(match['ends']))}}}"
        letters = match["bare"]
        if match["kind"] == "angle":
            letters = min(letters, letters[::-1])
        elif not keeps_order:
            letters = "".join(sorted(letters))
        return f"\\{match['kind']} {letters}"

    key = text_key(_NAMED.sub(named, tidied))
    sides = _SYMMETRIC.split(key)
    return "".join([*sorted((sides[0], sides[2])), sides[1]]) if len(sides) == 3 else key
