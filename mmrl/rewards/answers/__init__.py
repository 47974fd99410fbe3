"""Rewards that compare an answer with the reference: text, a choice, a number, mathematics."""
