"""What each training stage computes: its loss, its validation, its optimizer."""
