"""Work of a command on the machines of a Dask cluster."""
