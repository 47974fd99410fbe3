"""The reward `function`: a user's own."""
