"""Parts that need packages of their own, or that few use: found by name, imported by no other room."""
