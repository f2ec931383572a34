"""What the paper compares with: PCA, the VAE, densities of pixels, PixelCNN++."""
