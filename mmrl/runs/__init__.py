"""The run directory: what a trainer leaves behind and everyone else reads. Imports no torch.

writer.py     the trainer's hand: events, metrics, samples, under an owner token
reader.py     attempts joined along the line that survived
layout.py     names of folders and files; finding a run by path or name
recording.py  which groups keep their text;  shards.py  the parquet form;  records.py  what readers get
disk.py       whole files and JSON lines that outlive a full disk
progress.py   what a terminal shows;  trackers.py  TensorBoard and Weights & Biases
"""
