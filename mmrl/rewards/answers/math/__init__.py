"""The reward `math`: reading answers as mathematics and comparing them."""
