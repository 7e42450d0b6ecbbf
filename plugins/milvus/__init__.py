"""An index in a Milvus database or file."""
