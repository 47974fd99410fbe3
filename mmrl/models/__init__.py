"""Models behind one interface: loading, freezing, the two forward paths, one small adapter a family.

`loading.load_policy` makes a `policy.PolicyModel` from a model folder. Its `prompts` (a `processing.PromptProcessor`)
turn samples into `PreparedPrompt`s; `prefill` forwards those once into a `prefix.Prefix`; `extend` forwards tokens over
it, one at a time in sampling, whole responses in `forward`. `families/` holds what differs between families.
"""
