"""How good a checkpoint is, and whether another one is better. Imports no torch.

Trainer, commands and console share it.

outcomes    what came of each prompt: right or not, answers, rewards
scores      pass@k and maj@k of a prompt;  intervals  values with what they are known to
summary     the metrics of an evaluation, by source too;  paired  two checkpoints on the same prompts
panels      frozen prompts, settings and seeds;  versions  what must be alike for two evaluations to be compared
records     an evaluation on disk;  comparison  several of them side by side
"""
