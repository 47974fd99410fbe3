"""Which groups of a table of responses may fit a filter, told from its columns at once.

None that fits is left out; some may be named that do not, so what is found is asked again, see `run_search`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from console.services.group_filter import GroupFilter
from mmrl.data.serialise import messages_from_json

Numbers = np.ndarray[Any, np.dtype[Any]]
TEXTS = ("response", "messages", "answer")
_OF_ONLY = {
    "truncated": ("finish_reason",),
    "no-spread": ("reward_total",),
    "failed": ("reward_total",),
    "mixed": ("reward_total",),
    "disagree": ("reward_parts",),
}


def columns_for(wanted: GroupFilter) -> list[str]:
    """What `candidates` needs of a table."""
    asked: tuple[str, ...] = ("step", "group_id", *_OF_ONLY.get(wanted.only or "", ()))
    if wanted.find:
        asked += TEXTS
    if _has_range(wanted):
        asked += ("reward_total" if wanted.part == "total" else "reward_parts",)
    return list(dict.fromkeys(asked))


def candidates(table: pa.Table, wanted: GroupFilter) -> list[tuple[int, int]]:
    """Step and number of each group, in the table's order. The rows of a group are next to each other."""
    if not table.num_rows:
        return []
    step, group = (table[name].to_numpy() for name in ("step", "group_id"))
    is_first = np.r_[True, (step[1:] != step[:-1]) | (group[1:] != group[:-1])]
    starts = np.flatnonzero(is_first)
    fits = np.ones(len(starts), dtype=bool)
    if wanted.find:
        fits &= np.logical_or.reduceat(_has_text(table, wanted.find), starts)
    if _has_range(wanted):
        values = _values(table, str(wanted.part))
        low = -np.inf if wanted.low is None else wanted.low
        high = np.inf if wanted.high is None else wanted.high
        fits &= np.logical_or.reduceat((values >= low) & (values <= high), starts)
    if wanted.only is not None:
        fits &= _is_of_kind(table, wanted.only, starts)
    return [(int(step[place]), int(group[place])) for place in starts[fits]]


def _has_range(wanted: GroupFilter) -> bool:
    return wanted.part is not None and not (wanted.low is None and wanted.high is None)


def _is_of_kind(table: pa.Table, only: str, starts: Numbers) -> Numbers:
    if only == "truncated":
        return _any(np.asarray(pc.equal(table["finish_reason"], "length").fill_null(False)), starts)
    if only == "disagree":
        spread = [_has_spread(_values(table, name), starts) for name in _part_names(table)]
        return np.sum([np.zeros(len(starts)), *spread], axis=0) >= 2
    rewards = _values(table, "total")
    missing = np.isnan(rewards)
    if only == "failed":
        return _any(missing, starts)
    if only == "mixed":
        return _has_spread(rewards, starts)
    return ~_has_spread(rewards, starts) & (~_any(missing, starts) | ~_any(~missing, starts))


def _any(rows: Numbers, starts: Numbers) -> Numbers:
    return np.asarray(np.logical_or.reduceat(rows, starts))


def _has_spread(values: Numbers, starts: Numbers) -> Numbers:
    """Of each group, whether two of its values differ; missing ones do not count."""
    return np.asarray(np.fmax.reduceat(values, starts) > np.fmin.reduceat(values, starts))


def _part_names(table: pa.Table) -> list[str]:
    return [str(name) for name in pc.unique(_field(table, "name")).to_pylist()]


def _values(table: pa.Table, part: str) -> Numbers:
    """Of one reward part, or of the `total`, a row each; NaN where there is none. Of two of one name the first."""
    if part == "total":
        return np.asarray(table["reward_total"].to_numpy(), dtype=np.float64)
    is_part = np.asarray(pc.equal(_field(table, "name"), part).fill_null(False))
    rows = np.asarray(pc.list_parent_indices(_parts(table)))[is_part][::-1]
    found = np.full(table.num_rows, np.nan)
    found[rows] = _field(table, "value").to_numpy(zero_copy_only=False)[is_part][::-1]
    return found


def _parts(table: pa.Table) -> Any:
    return table["reward_parts"].combine_chunks()


def _field(table: pa.Table, name: str) -> Any:
    flat = pc.list_flatten(_parts(table))
    found = pc.struct_field(flat, name)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _has_text(table: pa.Table, find: str) -> Numbers:
    """In the response, the prompt or the reference. Equal ones, as those of a group, are looked at once."""
    wanted = find.casefold()
    found = np.zeros(table.num_rows, dtype=bool)
    for name in TEXTS:
        found |= np.concatenate([_of_chunk(chunk, name, wanted) for chunk in table[name].chunks])
    return found


def _of_chunk(chunk: Any, name: str, wanted: str) -> Numbers:
    if not pa.types.is_dictionary(chunk.type) and name == "response":
        return _contains(chunk.fill_null(""), wanted)
    encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
    if name == "messages":
        texts = encoded.dictionary.to_pylist()
        known = np.array([wanted in _prompt_text(text).casefold() for text in texts], dtype=bool)
    else:
        known = _contains(encoded.dictionary, wanted)
    places = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    return np.append(known, False)[places]


def _contains(texts: Any, wanted: str) -> Numbers:
    """Whatever its case, as `str.casefold` has it: letters of ASCII at once, other texts one by one."""
    is_plain = np.asarray(pc.string_is_ascii(texts))
    found = np.zeros(len(texts), dtype=bool)
    if wanted.isascii():
        found = np.array(pc.match_substring(texts, wanted, ignore_case=True)) & is_plain
    for row in np.flatnonzero(~is_plain):
        found[row] = wanted in texts[int(row)].as_py().casefold()
    return found


def _prompt_text(messages: str) -> str:
    """With a line between turns, over which no search goes."""
    return "\n".join(turn.text for turn in messages_from_json(json.loads(messages)))
