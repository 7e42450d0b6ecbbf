"""Why a query and a result match, and what blocks, or cells of a network's map, add. See docs/explaining.md."""
