"""Words that stand for a mathematical answer, and different words for one answer."""

from __future__ import annotations

import re

from mmrl.rewards.answers.latex import strip_text_commands

_SAME = {
    r"\emptyset": (
        "no solution, no solutions, no real solution, no real solutions, there is no solution, no real roots, "
        "empty set, 无解, 方程无解, 无实数解, 无实数根, 没有实数根, 空集"
    ),
    r"\mathbb{R}": (
        "all real numbers, all reals, any real number, every real number, 全体实数, 任意实数, 一切实数, 实数集"
    ),
    "does not exist": "dne, does not exist, doesnt exist, limit does not exist, 不存在, 极限不存在",
    "undefined": "undefined, not defined, 未定义, 无定义, 无意义, 没有意义",
    "infinitely many solutions": (
        "infinitely many, infinitely many solutions, infinite solutions, infinite number of solutions, "
        "无数解, 无数个解, 无穷多解, 无穷多个解"
    ),
    "yes": "yes, 是, 是的",
    "no": "no, 否, 不是",
    "true": "true, 正确, 对, 对的, 真, 真命题",
    "false": "false, 错误, 错, 错的, 不正确, 不对, 假, 假命题",
}
_CANONICAL = {word: canonical for canonical, words in _SAME.items() for word in words.split(", ")}
_FUNCTIONS = {"sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "pi", "sqrt", "max", "min", "arcsin"}


def is_words(tidied: str) -> bool:
    """Whether an answer is words rather than mathematics: `east`, `\\text{no}`, `没有`, but not `xy` or `sin x`."""
    if re.search(r"[\u4e00-\u9fff]", tidied):
        return re.search(r"\d", tidied) is None
    bare = strip_text_commands(tidied).strip()
    if not re.fullmatch(r"[A-Za-z][A-Za-z'\-.! ]*", bare):
        return False
    if tidied.startswith(r"\text") and len(bare) > 1:
        return True
    words = re.findall(r"[A-Za-z']+", bare)
    return any(len(word) >= 4 for word in words) or (
        any(len(word) >= 2 for word in words) and not _FUNCTIONS & set(words)
    )


def word_key(tidied: str) -> str:
    """What two answers in words share if they say the same."""
    words = strip_text_commands(tidied).casefold().replace("-", " ").split()
    return " ".join(word.strip(".,!'\"") for word in words if word not in ("the", "a", "an"))


def canonical_words(tidied: str) -> str:
    """The answer that words stand for: `\\emptyset` for `no solution` and `无解`, `true` for `正确`. Others as they
    are."""
    return _CANONICAL.get(word_key(tidied).replace("'", ""), tidied) if is_words(tidied) else tidied
