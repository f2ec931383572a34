"""Triton kernels of the cuda engine. A step at small batch is bound by latency, at large batch by reading the KV cache.

- `linear`: a few rows times a weight matrix, which is read before waiting for the previous kernel (`PDL`: programmatic
  dependent launch); long sums are split so that the whole GPU works.
- `add_norm`: the sum of the parts, the residual, and the layer norm.
- `attend`: one new query against the filled part of the KV cache.
- `embed`: token and position embeddings with their layer norm.
- `sample_codes`: the sampling of `gumbel.py`, hash included, on the device.
- `gather_codes`, `convolve`: the decoder's feature map, and a convolution with its bias, residual and activation.

Post-norm blocks: h1 = norm(h + out(attention(h))), h2 = norm(h1 + down(relu(up(h1)))).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _layer_norm(x, weight, bias, column, width, eps):
    """Layer norm of each row of x; columns from `width` on are padding."""
    inside = column[None, :] < width
    mean = tl.sum(tl.where(inside, x, 0.0), 1) / width
    centred = tl.where(inside, x - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, 1) / width
    scale = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    shift = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    return centred * (1.0 / tl.sqrt(variance + eps))[:, None] * scale[None, :] + shift[None, :]


@triton.jit
def _tile(weight, n, k, rows, columns, stride):
    """Part of a weight matrix, transposed. It is read again at the next step, so it should stay in the L2 cache."""
    inside = (n[None, :] < rows) & (k[:, None] < columns)
    return tl.load(weight + n[None, :] * stride + k[:, None], mask=inside, other=0.0, eviction_policy="evict_last")


@triton.jit
def linear(
    x, weight, bias, out, rows,
    K: tl.constexpr, N: tl.constexpr, RELU: tl.constexpr, BIAS: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out[part] = act(x[:, part] @ weight[:, part]^T + bias) for few rows.

    K is split into SPLIT parts, one program each; the reader sums them in a fixed order.
    """
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    if PDL:
        gdc_launch_dependents()
    begin = part * (K // SPLIT)
    end = begin + K // SPLIT
    k = begin + tl.arange(0, BLOCK_K)
    w = _tile(weight, n, k, N, end, K)
    if PDL:
        gdc_wait()
    h = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < rows) & (k[None, :] < end), other=0.0)
    sums = tl.dot(h, w, input_precision=PRECISION)
    for start in tl.range(begin + BLOCK_K, end, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        w = _tile(weight, n, k, N, end, K)
        h = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < rows) & (k[None, :] < end), other=0.0)
        sums = tl.dot(h, w, sums, input_precision=PRECISION)
    if BIAS:
        sums += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if RELU:
        sums = tl.maximum(sums, 0.0)
    target = out + part * rows * N + m[:, None] * N + n[None, :]
    tl.store(target, sums.to(out.dtype.element_ty), mask=(m[:, None] < rows) & (n[None, :] < N))


@triton.jit
def embed(
    codes, position, tokens, positions, norm_weight, norm_bias, out, start_symbol, length, width, eps,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """norm(token + position) of the previous code, or of the start symbol; one program per row."""
    row = tl.program_id(0)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    column = tl.arange(0, BLOCK)
    at = tl.minimum(tl.load(position + row), length - 1)  # a finished row is computed and ignored
    token = tl.load(codes + row * length + at - 1, mask=at > 0, other=start_symbol)
    inside = column < width
    total = tl.load(tokens + token * width + column, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(positions + at * width + column, mask=inside, other=0.0).to(tl.float32)
    h = _layer_norm(total[None, :], norm_weight, norm_bias, column, width, eps)
    tl.store(out + row * width + column[None, :], h.to(out.dtype.element_ty), mask=inside[None, :])


@triton.jit
def add_norm(
    x, bias, residual, norm_weight, norm_bias, out, rows, width, eps,
    PARTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """norm(residual + bias + sum of the parts of x), BLOCK_M rows per program."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = (m[:, None] < rows) & (column[None, :] < width)
    offset = m[:, None] * width + column[None, :]
    total = tl.load(residual + offset, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    for part in tl.static_range(PARTS):
        total += tl.load(x + part * rows * width + offset, mask=inside, other=0.0).to(tl.float32)
    h = _layer_norm(total, norm_weight, norm_bias, column, width, eps)
    tl.store(out + offset, h.to(out.dtype.element_ty), mask=inside)


@triton.jit
def attend(
    qkv, keys, values, position, out, length, scale,
    HEADS: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr, PADDED: tl.constexpr, BLOCK_T: tl.constexpr,
    STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Softmax attention of one row over its own position and those before, GROUP heads one after the other.

    The new key and value are written to the KV cache; the online softmax starts with them, still in registers. Cache entries
    are not read again before the next step, so the weights take precedence in the L2 cache.
    """
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * GROUP
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    column = tl.arange(0, PADDED)
    inside = column < DIM
    at = tl.minimum(tl.load(position + row), length - 1)
    for head in tl.range(first, tl.minimum(first + GROUP, HEADS)):
        source = qkv + row * 3 * HEADS * DIM + head * DIM + column
        query = tl.load(source, mask=inside, other=0.0).to(tl.float32) * scale
        key = tl.load(source + HEADS * DIM, mask=inside, other=0.0)
        value = tl.load(source + 2 * HEADS * DIM, mask=inside, other=0.0)
        cached = (row * HEADS + head) * length * DIM
        tl.store(keys + cached + at * DIM + column, key, mask=inside, eviction_policy="evict_first")
        tl.store(values + cached + at * DIM + column, value, mask=inside, eviction_policy="evict_first")
        running_max = tl.sum(query * key.to(tl.float32), 0)
        denominator = 1.0
        found = value.to(tl.float32)
        for start in tl.range(0, at, BLOCK_T, num_stages=STAGES):
            t = start + tl.arange(0, BLOCK_T)
            offset = cached + t[:, None] * DIM + column[None, :]
            filled = (t[:, None] < at) & inside[None, :]
            k = tl.load(keys + offset, mask=filled, other=0.0, eviction_policy="evict_first")
            v = tl.load(values + offset, mask=filled, other=0.0, eviction_policy="evict_first")
            scores = tl.where(t < at, tl.sum(query[None, :] * k.to(tl.float32), 1), float("-inf"))
            new_max = tl.maximum(running_max, tl.max(scores, 0))
            weights = tl.exp(scores - new_max)
            rescale = tl.exp(running_max - new_max)
            denominator = denominator * rescale + tl.sum(weights, 0)
            found = found * rescale + tl.sum(weights[:, None] * v.to(tl.float32), 0)
            running_max = new_max
        tl.store(out + (row * HEADS + head) * DIM + column, (found / denominator).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _mix(x):
    """As in core/random.py: int32 with wrap-around."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * 0x7FEB352D
    x = (x ^ ((x >> 15) & 0x1FFFF)) * -0x7B935975
    return x ^ ((x >> 16) & 0xFFFF)


@triton.jit
def _absorb(word, value):
    return _mix((word ^ value) - 0x61C88647)


@triton.jit
def sample_codes(
    logits, request, temperature, position, codes, length, categories,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """argmax(logits / temperature + Gumbel noise) of one row; advances its position.

    `request` has five numbers for each row: the two key words of the seed, the row number, the length of the prefix, and
    whether the row is active. The code and the position of an inactive row stay as they are.
    """
    row = tl.program_id(0)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    category = tl.arange(0, BLOCK)
    inside = category < categories
    at = tl.load(position + row)
    row_number = tl.load(request + 5 * row + 2)
    first = _absorb(_absorb(tl.load(request + 5 * row), row_number), at)
    second = _absorb(_absorb(tl.load(request + 5 * row + 1), row_number), at)
    word = _mix(_mix(category * -0x61C88647 + first) ^ second)
    uniform = (((word >> 9) & 0x7FFFFF).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    noise = -tl.log(-tl.log(uniform))
    scores = tl.load(logits + row.to(tl.int64) * categories + category, mask=inside, other=0.0).to(tl.float32)
    noised = tl.where(inside, scores / tl.load(temperature + row) + noise, float("-inf"))
    chosen = tl.argmax(noised, 0)
    is_active = (tl.load(request + 5 * row + 4) != 0) & (at < length)
    tl.store(codes + row * length + at, chosen, mask=is_active & (at >= tl.load(request + 5 * row + 3)))
    tl.store(position + row, at + 1, mask=is_active)


@triton.jit
def gather_codes(codes, codebook, out, length, dim, LENGTH: tl.constexpr, BLOCK_POSITIONS: tl.constexpr):
    """out[row, position, i] = codebook[codes[row, i], position]: codebook entries as channels, channels last."""
    row = tl.program_id(0).to(tl.int64)
    position = tl.program_id(1) * BLOCK_POSITIONS + tl.arange(0, BLOCK_POSITIONS)
    i = tl.arange(0, LENGTH)
    code = tl.load(codes + row * length + i, mask=i < length, other=0)
    inside = (position < dim)[:, None] & (i < length)[None, :]
    entry = tl.load(codebook + code[None, :] * dim + position[:, None], mask=inside, other=0.0)
    tl.store(out + (row * dim + position)[:, None] * length + i[None, :], entry, mask=inside)


@triton.jit
def _activate(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        return tl.maximum(x, 0.0)
    if ACTIVATION == "silu":
        return x * tl.sigmoid(x)
    return tl.sigmoid(x)


@triton.jit
def _taps(taps, part, pixel, channel, IN: tl.constexpr, OUT: tl.constexpr, TAPS: tl.constexpr, K: tl.constexpr):
    """Weights of one part of the sum: K channels of one tap."""
    parts: tl.constexpr = (IN + K - 1) // K
    k = part % parts * K + tl.arange(0, K)
    row = (pixel * TAPS * TAPS + part // parts) * IN + k
    return tl.load(taps + row[:, None] * OUT + channel[None, :], mask=(k < IN)[:, None] & (channel < OUT)[None, :], other=0.0)


@triton.jit
def convolve(
    x, taps, bias, residual, total, out, pixels, height, width, image_stride, row_stride, column_stride, channel_stride,
    IN: tl.constexpr, OUT: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, TAPS: tl.constexpr, SHUFFLE: tl.constexpr,
    ADDS_RESIDUAL: tl.constexpr, STORES_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, PDL: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """out = act(taps * x + bias + residual), see `FusedConv`; M pixels of x and N channels per program, channels last.

    The input of the activation is stored in `total`, which has the layout of `out`.
    """
    source_pixel = tl.program_id(0) * M + tl.arange(0, M)
    channel = tl.program_id(1) * N + tl.arange(0, N)
    pixel = tl.program_id(2)  # of the STRIDE² output pixels
    if PDL:
        gdc_launch_dependents()
    parts: tl.constexpr = (IN + K - 1) // K
    shift = tl.load(bias + channel, mask=channel < OUT, other=0.0)
    if PDL:
        gdc_wait()
    image, row, column = (source_pixel // (width * height)).to(tl.int64), source_pixel // width % height, source_pixel % width
    below, right = (pixel // STRIDE + PADDING) // STRIDE, (pixel % STRIDE + PADDING) // STRIDE
    sums = tl.zeros((M, N), tl.float32)
    for part in tl.range(TAPS * TAPS * parts):
        tap = part // parts
        i, j = row + below - tap // TAPS, column + right - tap % TAPS
        k = part % parts * K + tl.arange(0, K)
        valid = (source_pixel < pixels) & (i >= 0) & (i < height) & (j >= 0) & (j < width)
        source = ((image * height + i) * width + j)[:, None] * IN + k[None, :]
        h = tl.load(x + source, mask=valid[:, None] & (k < IN)[None, :], other=0.0)
        w = _taps(taps, part, pixel, channel, IN, OUT, TAPS, K)
        sums = tl.dot(h, w, sums)
    sums += shift[None, :]
    corner = image * image_stride + row * STRIDE * SHUFFLE * row_stride + column * STRIDE * SHUFFLE * column_stride
    if SHUFFLE == 1:
        offset = pixel // STRIDE * row_stride + pixel % STRIDE * column_stride + channel * channel_stride
    else:
        channels_per_pixel: tl.constexpr = OUT // (SHUFFLE * SHUFFLE)
        offset = (
            channel // channels_per_pixel // SHUFFLE * row_stride
            + channel // channels_per_pixel % SHUFFLE * column_stride
            + channel % channels_per_pixel * channel_stride
        )
    target = corner[:, None] + offset[None, :]
    inside = (source_pixel < pixels)[:, None] & (channel < OUT)[None, :]
    if ADDS_RESIDUAL:
        sums += tl.load(residual + target, mask=inside, other=0.0).to(tl.float32)
    if STORES_RESIDUAL:
        tl.store(total + target, sums.to(total.dtype.element_ty), mask=inside)
    tl.store(out + target, _activate(sums, ACTIVATION).to(out.dtype.element_ty), mask=inside)
