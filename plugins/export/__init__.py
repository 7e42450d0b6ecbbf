"""Write the similarity and the gallery for other programs."""
