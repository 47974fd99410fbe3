"""Rewards of vision tasks: boxes, points, counts, text in images, captions, rendered pictures."""
