"""Baselines that the paper compares with: PCA, VAE, density models, PixelCNN++."""
