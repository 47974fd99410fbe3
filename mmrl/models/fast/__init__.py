"""Modules of transformers' models computed in fewer and faster passes over memory; weights and their names stay."""

from mmrl.models.fast.modules import make_fast

__all__ = ["make_fast"]
