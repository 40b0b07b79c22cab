"""Changed inputs for every parser: `mutations` makes them, `targets` names parsers and seeds."""
