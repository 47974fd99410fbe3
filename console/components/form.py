"""Widgets of a draft's settings. Each writes its change into the draft at once, and shows what the draft says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from console.components.changes import changed, tell
from console.components.text import literal
from console.services.draft_text import UNSET
from console.services.drafts import Draft, Drafts
from console.services.form_fields import FormField, to_value
from console.services.launching import Checked
from mmrl.config.dump import value_text
from mmrl.errors import MmrlError

FORM_ERROR = "form_error"
_PAUSE = "400ms"


class Form:
    """One draft's widgets. checked: what is wrong with it, told beside the setting that it is about."""

    def __init__(self, drafts: Drafts, draft: Draft, checked: Checked) -> None:
        self.drafts, self.draft, self.checked = drafts, draft, checked

    def key(self, name: str) -> str:
        """Widgets of another draft are others."""
        return f"{self.draft.id}_{name.replace('.', '-')}"

    def save(self, name: str, value: Any) -> None:
        """Called by widgets when they changed."""
        try:
            self.drafts.set_value(self.draft.id, name, value)
        except MmrlError as error:
            st.session_state[FORM_ERROR] = str(error)

    def now(self) -> Draft:
        """For callbacks: the draft as it is by now, which may be other than the page shows."""
        return self.drafts.get(self.draft.id)

    def hold(self, name: str, value: Any, same: Callable[[Any], bool] | None = None) -> str:
        """The widget's key, its state brought in line with the draft unless it stands for the same already: a text that
        is being typed must not be replaced by the number that it means."""
        key = self.key(name)
        known = key in st.session_state
        is_same = known and (same(st.session_state[key]) if same is not None else st.session_state[key] == value)
        if not is_same:
            tell(key, value)
        return key

    def tell_faults(self, name: str) -> None:
        for fault in self.checked.of(name):
            st.caption(f":red[{literal(fault.text)}]")

    def field(self, field: FormField, *, label: str | None = None) -> None:
        """The widget of a field, with its help, its bounds and what is wrong with it."""
        value = self.draft.value(field.key, field.default)
        _WIDGETS[field.kind](self, field, label or field.label, value)
        self.tell_faults(field.key)

    def store(self, field: FormField, value: Any) -> None:
        """Writes a field; its default is written as nothing, so that the text stays as short as what was chosen."""
        is_default = value == field.default and not field.is_required
        self.save(field.key, UNSET if is_default or (value in (None, "") and field.is_required) else value)


def fields_grid(form: Form, fields: Sequence[FormField], *, columns: int) -> None:
    """Fields side by side, row by row, so that they are read in their order in any width."""
    for start in range(0, len(fields), columns):
        for place, field in zip(st.columns(columns), fields[start : start + columns], strict=False):
            with place:
                form.field(field)


def _switch(form: Form, field: FormField, label: str, value: Any) -> None:
    key = form.hold(field.key, bool(value))
    st.toggle(label, key=key, help=field.help, on_change=changed(key, lambda new: form.store(field, new)))


def _choice(form: Form, field: FormField, label: str, value: Any) -> None:
    options: list[Any] = [*([None] if field.is_nullable else []), *field.options]
    key = form.hold(field.key, value if value in options else options[0])
    st.selectbox(
        label,
        options,
        key=key,
        help=field.help,
        format_func=lambda option: "none" if option is None else str(option),
        on_change=changed(key, lambda new: form.store(field, new)),
    )


def _choices(form: Form, field: FormField, label: str, value: Any) -> None:
    chosen = [each for each in value if each in field.options] if isinstance(value, list) else []
    key = form.hold(field.key, chosen)
    st.multiselect(
        label,
        list(field.options),
        key=key,
        help=field.help,
        placeholder="none",
        on_change=changed(key, lambda new: form.store(field, list(new))),
    )


def _texts(form: Form, field: FormField, label: str, value: Any) -> None:
    chosen = [str(each) for each in value] if isinstance(value, list) else []
    key = form.hold(field.key, chosen)
    st.multiselect(
        label,
        chosen,
        key=key,
        help=field.help,
        accept_new_options=True,
        placeholder="type, then Enter",
        on_change=changed(key, lambda new: form.store(field, list(new))),
    )


def _text(form: Form, field: FormField, label: str, value: Any) -> None:
    """Text, numbers and small pieces of YAML are typed; what is no number is kept and told of."""
    shown = _shown(field, value)
    name = f"{field.key}-typed" if field.kind == "whole" else field.key
    key = form.hold(name, shown, lambda typed: to_value(field, typed) == value or (not shown and not typed.strip()))
    st.text_input(
        label,
        key=key,
        help=field.help,
        live=_PAUSE,
        placeholder="none" if field.is_nullable else None,
        on_change=changed(key, lambda new: form.store(field, to_value(field, new))),
    )


def _whole(form: Form, field: FormField, label: str, value: Any) -> None:
    is_number = (isinstance(value, int) and not isinstance(value, bool)) or value is None
    if not is_number or _is_beyond(field, value):
        _text(form, field, label, value)
        return
    key = form.hold(field.key, value)
    st.number_input(
        label,
        min_value=None if field.minimum is None else int(field.minimum),
        max_value=None if field.maximum is None else int(field.maximum),
        value=None,
        step=1,
        key=key,
        help=field.help,
        placeholder="none" if field.is_nullable else None,
        on_change=changed(key, lambda new: form.store(field, _or_default(field, new))),
    )


def _type(form: Form, field: FormField, label: str, value: Any) -> None:
    """Which form a part has; its fields follow from it."""
    tag = value.get("type") if isinstance(value, dict) else None
    options: list[Any] = [*([None] if field.is_nullable else []), *field.options]
    key = form.hold(field.key, tag if tag in options else options[0])

    def change(chosen: str | None) -> None:
        form.save(field.key, UNSET if chosen is None else {"type": chosen})

    st.selectbox(
        label,
        options,
        key=key,
        help=field.help,
        format_func=lambda option: "its own" if option is None else str(option),
        on_change=changed(key, change),
    )


def _part(form: Form, field: FormField, label: str, value: Any) -> None:
    """A part that a config may have; turned on it begins with its defaults."""
    key = form.hold(field.key, value is not None)
    st.toggle(
        label,
        key=key,
        help=field.help,
        on_change=changed(key, lambda new: form.save(field.key, {} if new else UNSET)),
    )


def _shown(field: FormField, value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _yaml_line(value)


def _yaml_line(value: Any) -> str:
    """Maps and lists on one line, as YAML takes them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_yaml_line(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(_yaml_line(each) for each in value)}]"
    return value_text(value)


def _is_beyond(field: FormField, value: int | None) -> bool:
    """A number that the config refuses is shown as text, so that it can be mended."""
    if value is None:
        return False
    low, high = field.minimum, field.maximum
    return (low is not None and value < low) or (high is not None and value > high)


def _or_default(field: FormField, value: int | None) -> Any:
    return field.default if value is None and not field.is_nullable else value


_WIDGETS: dict[str, Callable[[Form, FormField, str, Any], None]] = {
    "switch": _switch,
    "choice": _choice,
    "choices": _choices,
    "texts": _texts,
    "text": _text,
    "number": _text,
    "yaml": _text,
    "whole": _whole,
    "type": _type,
    "part": _part,
}
