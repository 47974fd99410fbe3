"""The loops. `online.py` (RL) and `offline.py` (SFT) are read first; the other files hold what both stand on."""

from mmrl.trainer.launch import TrainResult, train

__all__ = ["TrainResult", "train"]
