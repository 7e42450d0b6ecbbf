"""What `visterm evaluate` measures and writes on demand: classes held out, siblings by is-a tables, run files."""
