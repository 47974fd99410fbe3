"""Uploads in memory: so much at a time, of all people together."""

from __future__ import annotations

from console.held_uploads import Room


def test_uploads_on_their_way_count_until_they_are_over() -> None:
    room = Room(most_bytes=100)
    with room.taken(60) as first:
        assert first
        with room.taken(50) as second:
            assert not second
        with room.taken(40) as third:
            assert third
    with room.taken(100) as later:
        assert later
    with room.taken(101) as larger:
        assert not larger
