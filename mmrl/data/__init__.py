"""From any accepted file to validated samples with content-addressed images. Imports no torch.

A path is looked through for splits (`sources`), each read as rows (`formats`), each row made a Sample or an error
(`normalise`, which asks `turns` and `image_forms`), each image stored once (`pixels`, `images`). `ingest` does this for
whole sources, `registry` keeps the result, `dataset` loads it, `stream` hands it out in batches.
"""

from mmrl.data.dataset import Dataset, load_dataset
from mmrl.data.images import ImageStore

__all__ = ["Dataset", "ImageStore", "load_dataset"]
