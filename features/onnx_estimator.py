"""The embedder of ONNX models as a transformer of scikit-learn."""

from __future__ import annotations

from sklearn.base import BaseEstimator, TransformerMixin

from .onnx_embedder import ImageEmbedder


class OnnxEmbedder(ImageEmbedder, TransformerMixin, BaseEstimator):
    """Turn images into dense vectors with an ONNX image model, run by ONNX Runtime.

    Parameters
    ----------
    model : path
        The ONNX file: an input float32, float16 or uint8, (n, 3, height, width) or (n, height, width, 3). Weights may
        lie in files beside it. Of a model of images and texts, the part that `layer` needs is used.
    size : int, (int, int) or None
        Height and width of the input in pixels; one number for a square. None: read from the model.
    resize : {"crop", "trim", "stretch", "pad"}
        How to fit an image to this size. "crop": take the largest centred part of the input's aspect ratio. "stretch":
        take the whole image and change its aspect ratio. "trim": halfway between these two; the centred part whose
        aspect ratio is the geometric mean of the image's and the input's is stretched. "pad": take the whole image and
        fill the rest with the mean colour.
    keep : float
        With "crop" and "trim", the share of the longest possible sides that is kept: with "crop", 0.875 equals resizing
        to 256 and cropping to 224.
    preprocess : {"0..1", "imagenet", "tf", "clip", "dinov2"}
        The mean and the scale that models of this kind expect, see `visterm.features.presets`.
    mean, scale : float, three floats or None
        The model gets ``(pixel - mean) * scale`` of pixels from 0 to 255; three numbers are for red, green and blue.
        None: as `preprocess` says. A model whose input is uint8 gets the pixels as they are.
    channels : {"rgb", "bgr"}
        The order of channels that the model expects.
    layer : str or None
        Name of the tensor in the model that is the vector; None: the output, if there is only one. A map of channels
        (n, c, h, w) or (n, h, w, c) is averaged over h and w. A tensor that is no output needs the package ``onnx``.
    pool : {"cls", "mean", "mean-patches"} or None
        Of tokens (n, n_tokens, d), as transformers give them: the first, the mean of all, or the mean of those of
        patches, without the class token and registers before them. None: the layer gives a vector or a map.
    batch : int
        Images per run of the model. A model with a fixed batch size is always run with that size.
    unit : bool
        Scale vectors to unit length.
    max_pixels : int
        Refuse larger image files, see `read_image`.
    reading, white : int
        How files of more than 8 bits become pixels, as in `VistermExtractor`.
    n_jobs : int or None
        Threads of ONNX Runtime, which runs on a GPU where it has one; None means one, -1 all cores. Not saved.

    Attributes
    ----------
    n_features_out_ : int
        Length of the vectors.
    size_ : (int, int)
        Height and width of the input.
    sha256_ : str
        Of the model file, in hexadecimal; where weights lie in files beside it, of all files.
    resizing_ : int
        Version of `visterm.features.resizing`, which an embedder saved earlier keeps.

    Notes
    -----
    - A side that shrinks is averaged over areas, one that grows is interpolated linearly. JPEG files much larger
      than the input are decoded at 1/2, 1/4 or 1/8 of their size.
    - With ``batch=1`` the vector of an image does not depend on the other images. With larger batches ONNX Runtime may
      sum in another order, which can change the last digits.
    - Several threads may use one embedder at the same time.
    """
