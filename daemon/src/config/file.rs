//! The YAML file as written: documents, lines, scalars in their spelling.
