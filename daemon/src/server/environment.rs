//! What a child sees: PATH, variables, working folder, resolved command.
