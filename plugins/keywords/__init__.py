"""Keywords, ratings and names of people that photos and their sidecars hold, as labels and fields, and back."""
