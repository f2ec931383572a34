"""From data to a saved model: pretrain, ordered, prior."""
