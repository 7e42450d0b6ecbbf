"""What people say about images, and what follows: labels, marks, similarities learned from them."""
