"""The server: many requests share one model, and every answer is ready by its deadline."""
