"""Rewards for the form of a response: its pattern, tags, language, length, repetition."""
