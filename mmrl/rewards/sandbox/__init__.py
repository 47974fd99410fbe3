"""Running programs that nobody trusts."""
