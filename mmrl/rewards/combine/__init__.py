"""Rewards that are made of others, and bringing parts to one scale."""
