"""Progressive files: `compress` and `decompress`. A file cut at any byte after its header decodes to a complete image."""

from anytime.compression.progressive import Compressor, Decompressed, compress, decompress

__all__ = ["Compressor", "Decompressed", "compress", "decompress"]
