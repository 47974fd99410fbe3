"""Rewards that are scored elsewhere: by a model, a judge or a service over HTTP."""
