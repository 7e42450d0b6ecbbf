"""Labels and marks that people give, and the similarities learned from them."""
