from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anytime.autoencoders.layout import Layout, code_shape, to_features, to_latents

layouts = st.sampled_from(["channel", "spatial"])


@given(
    layout=layouts,
    batch=st.integers(1, 3),
    channels=st.integers(1, 6),
    spatial_shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
)
def test_features_to_latents_and_back(layout: Layout, batch: int, channels: int, spatial_shape: tuple[int, ...]) -> None:
    features = torch.arange(batch * channels * torch.Size(spatial_shape).numel()).float().view(batch, channels, *spatial_shape)
    latents = to_latents(features, layout)
    assert latents.shape[1:] == code_shape(channels, spatial_shape, layout)
    assert torch.equal(to_features(latents, layout, spatial_shape), features)


def test_channel_wise_codes_are_channels_and_spatial_ones_are_positions() -> None:
    features = torch.arange(24).float().view(1, 2, 3, 4)
    assert torch.equal(to_latents(features, "channel")[0, 1], features[0, 1].flatten())
    assert torch.equal(to_latents(features, "spatial")[0, 5], features[0, :, 1, 1])


@pytest.mark.parametrize(("layout", "expected"), [("channel", (70, 16)), ("spatial", (16, 70))])
def test_code_shape(layout: Layout, expected: tuple[int, int]) -> None:
    assert code_shape(70, (4, 4), layout) == expected
